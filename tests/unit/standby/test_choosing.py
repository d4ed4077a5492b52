from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwarden_verdict.entities import Contact
from gpuwarden_verdict.policy.parse import PolicyError, parse_policy
from gpuwarden_verdict.standby import (
    Look,
    Obstacle,
    Shelf,
    Spare,
    SpareState,
    choose,
    obstacles_of,
)

NOW = 1_000_000.0
DAY_S = 86_400.0


def look(name: str, state: SpareState = SpareState.WARM, **facts: Any) -> Look:
    spare = Spare(name, "train", state, 0.0, "ana")
    return replace(Look(spare, Contact.LIVE, proof_at=NOW - 3600.0), **facts)


def taken(*looks: Look, rack: str = "r1", leaf: str = "l1") -> str | None:
    choice = choose(rack, leaf, looks, DAY_S, NOW)
    return None if choice is None else choice.look.spare.node_id


def test_the_nearest_goes_first() -> None:
    far, near, nearest = look("a"), look("b", rack="r1"), look("c", rack="r9", leaf="l1")
    assert taken(far, near, nearest) == "c"
    assert taken(far, near) == "b"
    assert taken(far) == "a"
    assert taken(near, far, rack="", leaf="") == "a", "what nobody knows is near nothing"


def test_a_lemon_goes_last_however_near() -> None:
    assert taken(look("a", leaf="l1", lemon=0.5), look("b")) == "b"
    assert taken(look("a", leaf="l1", lemon=0.5)) == "a"


def test_warmth_then_the_latest_proof_then_the_name_decide_between_equals() -> None:
    cold, warm = look("a", SpareState.COLD), look("z")
    assert taken(cold, look("b", SpareState.WARMING), warm) == "z"
    assert taken(look("a"), look("b", proof_at=NOW - 60.0)) == "b"
    assert taken(look("b"), look("a")) == "a"


@pytest.mark.parametrize(
    ("facts", "obstacle"),
    [
        ({"contact": Contact.SILENT}, Obstacle.SILENT),
        ({"contact": Contact.NEVER}, Obstacle.SILENT),
        ({"contact": Contact.RETIRED}, Obstacle.SILENT),
        ({"excluded": True}, Obstacle.EXCLUDED),
        ({"incidents": 1}, Obstacle.INCIDENT),
        ({"healthy": False}, Obstacle.NOT_HEALTHY),
        ({"maintenance": "upgrade of r1"}, Obstacle.MAINTENANCE),
        ({"proof_at": None}, Obstacle.NO_PROOF),
        ({"proof_at": NOW - DAY_S - 1.0}, Obstacle.PROOF_TOO_OLD),
        ({"proof_from": NOW - 3599.0}, Obstacle.PROOF_OVERTAKEN),
        ({"leased": True}, Obstacle.LEASED),
        ({"has_gpus": False}, Obstacle.NO_GPUS),
        ({"has_pool": False}, Obstacle.NO_POOL),
    ],
)
def test_what_stands_against_a_spare_is_named_and_it_is_never_taken(
    facts: dict[str, Any], obstacle: Obstacle
) -> None:
    one = look("a", **facts)
    assert obstacles_of(one, DAY_S, NOW) == (obstacle,)
    assert taken(one) is None
    assert obstacles_of(look("a"), DAY_S, NOW) == ()


def test_a_leased_spare_is_taken_no_second_time() -> None:
    assert obstacles_of(look("a", SpareState.LEASED), DAY_S, NOW) == (Obstacle.LEASED,)


def test_a_spare_whose_lease_expired_is_taken_only_once_somebody_says_it_stands_by() -> None:
    one = look("a", SpareState.RETURNING)
    assert obstacles_of(one, DAY_S, NOW) == (Obstacle.RETURNING,)
    assert taken(one) is None
    assert not Shelf({"a": one.spare}).stands_by("a"), "it may be at work still"


def test_the_choice_says_why() -> None:
    choice = choose("r1", "l1", [look("a", rack="r1")], DAY_S, NOW)
    assert choice is not None
    assert choice.why == "same rack, warm, proven 1.0 h ago"


def test_the_policy_says_who_is_replaced_and_is_silent_by_default() -> None:
    assert parse_policy("").pools[-1].standby.promote is False
    text = '[[pools]]\nname = "t"\nnodes = ["t*"]\nstandby = { promote = true, proof_s = 3600 }\n'
    rules = parse_policy(text).pools[0].standby
    assert (rules.promote, rules.proof_s, rules.lease_s) == (True, 3600.0, 0.0)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("3", "defaults.standby"),
        ("{ promote = 1 }", "defaults.standby.promote"),
        ("{ proof_s = 1 }", "defaults.standby.proof_s"),
        ("{ lease_s = -1 }", "defaults.standby.lease_s"),
        ("{ proofs = 1 }", "defaults.standby.proofs"),
    ],
)
def test_a_wrong_word_about_spares_is_named(value: str, key: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"[defaults]\nstandby = {value}\n")
    assert caught.value.key == key
