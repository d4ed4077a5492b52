"""Decisions judged again from what they rested on, and what two policies did side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.policy.diff import Change, changes_between, moves_between
from gpuwarden_verdict.policy.document import DecisionMove, DecisionPhase, PolicyDocument
from gpuwarden_verdict.policy.evaluate import EntityCase, decide
from gpuwarden_verdict.policy.forms import comparison_form
from gpuwarden_verdict.policy.guards import Guard, PoolLoad, Seat
from gpuwarden_verdict.policy.parse import parse_policy, pool_of
from gpuwarden_verdict.policy.replay import Effect, Stand, replay
from gpuwarden_verdict.policy.snapshots import (
    DecisionSnapshot,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    snapshot_of_case,
)
from gpuwarden_verdict.policy.tally import Line, differences_of, spells_of, tally_of
from gpuwarden_verdict.signals import Contribution, Risk
from tests.builders.cases import GPU, NOW, incident, item
from tests.builders.verdict import counter_of, node_ref

ACTS = '[defaults]\nmode = "act"\ncap = { max_nodes = 2, max_percent = 100 }\n'
RISK = Risk(
    GPU, 0.9, FaultClass.MEMORY, (Contribution("x", None, float("nan"), 1.0),), "gpu-1", "s", NOW
)


def frozen(
    text: str = ACTS, *, full: bool = False, case: EntityCase | None = None
) -> DecisionSnapshot:
    """A judgement as the judge keeps it, over its bytes."""
    document = parse_policy(text)
    case = case or EntityCase(
        GPU, (incident(),), risk=RISK, storms=frozenset({"inc-else"}), seat=Seat("r1")
    )
    pool = pool_of(document, case.entity.node_id)
    load = PoolLoad(8, frozenset({"n5", "n6"}) if full else frozenset())
    moves = decide(case, pool, document.version, load, NOW, counter_of("dec"))
    judged = (document.version, NOW, tuple(moves))
    kept = snapshot_of_case(case, pool.name, {"rack": "r1"}, {pool.name: load}, judged)
    return decode_snapshot(1, encode_snapshot(kept))


def test_the_same_inputs_give_the_same_decision_after_a_round_trip() -> None:
    for full in (False, True):
        kept = frozen(full=full)
        again = replay(kept, parse_policy(ACTS))
        assert again.same
        assert again.then == again.now
        assert again.notes == ()
        assert again.now.effect is (Effect.HELD_BACK if full else Effect.EXCLUDED)
    assert kept.case.storms == frozenset()  # another entity's
    assert kept.model_version == "gpu-1"
    assert len(encode_snapshot(kept)) < 1500


def test_another_policy_says_what_it_would_have_done() -> None:
    kept = frozen()
    advised = replay(kept, parse_policy(ACTS.replace('"act"', '"advise"')))
    assert not advised.same
    assert (advised.then.effect, advised.now.effect) == (Effect.EXCLUDED, Effect.ADVISED)
    assert "evidence is as detectors found it under the policy of then" in advised.notes
    roomier = replay(frozen(full=True), parse_policy(ACTS.replace("2,", "3,")))
    assert (roomier.then.guard, roomier.now.effect) == (Guard.CAP_NODES, Effect.EXCLUDED)
    alike = replay(kept, parse_policy(ACTS + "dwell_s = 5\n"))
    assert alike.same


def test_another_policy_may_have_other_pools_by_name_and_label() -> None:
    kept = frozen(full=True)
    other = parse_policy(
        ACTS + '[[pools]]\nname = "r"\nlabels = { rack = "r1" }\nmode = "observe"\n'
    )
    again = replay(kept, other)
    assert (again.pool, again.now.effect) == ("r", Effect.OBSERVED)
    assert "had no pool 'r'" in again.notes[0]


def test_a_decision_that_comes_out_otherwise_by_its_own_policy_is_told() -> None:
    kept = frozen()
    (move,) = kept.moves
    altered = replace(kept, moves=(replace(move, reason="something else"),))
    again = replay(altered, parse_policy(ACTS))
    assert not again.same
    assert again.then == again.now


@pytest.mark.parametrize(("form", "body"), [(2, b""), (1, b"damaged"), (1, b"")])
def test_bytes_of_another_version_are_named(form: int, body: bytes) -> None:
    with pytest.raises(SnapshotError) as caught:
        decode_snapshot(form, body)
    assert str(caught.value)


# two policies side by side


def _moves(phases: list[tuple[float, DecisionPhase]], entity: EntityRef) -> list[DecisionMove]:
    made = frozen(case=EntityCase(entity, (incident(entity),))).moves[0]
    return [
        DecisionMove(replace(made.decision, phase=phase), None, "because", "gpuwarden", NOW + at)
        for at, phase in phases
    ]


def test_cases_and_gpu_hours_of_a_hand_computed_story() -> None:
    held, force, ended = DecisionPhase.HELD_BACK, DecisionPhase.IN_FORCE, DecisionPhase.LIFTED
    moves = _moves([(0, held), (3600, force), (3 * 3600, ended)], node_ref(1))
    (spell,) = spells_of(moves, lambda _node: "train", lambda _entity: 8, NOW + 9e9)
    assert spell.stand.effect is Effect.EXCLUDED
    assert spell.gpu_hours == {Effect.HELD_BACK: 8.0, Effect.EXCLUDED: 16.0}
    lives_on = spells_of(
        _moves([(0, force)], GPU), lambda _node: "train", lambda _entity: 1, NOW + 7200
    )
    assert tally_of([spell, *lives_on]) == {
        ("train", FaultClass.BUS): {
            Effect.EXCLUDED: Line(2, 18.0),
            Effect.HELD_BACK: Line(0, 8.0),
        }
    }
    (differs,) = differences_of([spell], [])
    assert (differs.before, differs.after) == (
        (spell.stand, 16.0),
        (Stand(), 0.0),
    )
    form = comparison_form([spell], [spell, *lives_on])
    assert form["differing"] == 1
    assert form["cases"][0]["entity"] == GPU.key
    assert form["by"][0]["after"][0] == {"effect": "excluded", "cases": 2, "gpu_hours": 18.0}


def test_differences_between_policies_are_told_by_pool_class_and_rung() -> None:
    old = parse_policy(ACTS + '[[pools]]\nname = "a"\nnodes = ["a*"]\n')
    text = ACTS.replace("max_nodes = 2", "max_nodes = 3, max_per_rack = 1") + (
        '[[defaults.rules]]\nclasses = ["nic", "thermal"]\nrungs = ["drain"]\nmode = "advise"\n'
        '[[defaults.rules]]\nrungs = ["evict"]\nconfidence = 0.99\n'
        '[[pools]]\nname = "b"\nlabels = { rack = "r*" }\nmode = "observe"\n'
        "[detectors.oom]\nenabled = false\n[learning]\ngpu_hour_missed_fault = 12\n"
    )
    new = parse_policy(text)
    assert changes_between(old, old) == []
    assert changes_between(old, new) == [
        Change("a", "pool", "a* in mode act", ""),
        Change("b", "pool", "", "rack=r* in mode observe"),
        Change("default", "cap.max_nodes", "2", "3"),
        Change("default", "cap.max_per_rack", "none", "1"),
        Change("default", "mode at drain of thermal, nic", "act", "advise"),
        Change("default", "confidence at evict", "as built in", "0.99"),
        Change("default", "mode at evict of thermal, nic", "act", "advise"),
        Change("", "detectors.oom", "none", "enabled = false"),
        Change("", "learning.gpu_hour_missed_fault", "1", "12"),
    ]
    nodes = [("a1", {}), ("x", {"rack": "r7"}), ("y", {})]
    assert [(m.node_id, m.before, m.after) for m in moves_between(old, new, nodes)] == [
        ("a1", "a", "default"),
        ("x", "default", "b"),
    ]


def test_rules_that_say_the_same_are_no_difference() -> None:
    plain: PolicyDocument = parse_policy(ACTS)
    said = parse_policy(ACTS + '[[defaults.rules]]\nclasses = ["nic"]\nmode = "act"\n')
    assert plain.version != said.version
    assert changes_between(plain, said) == []


def test_a_drain_that_waits_for_a_person_is_a_stand_of_its_own() -> None:
    drains = EntityCase(GPU, (incident(GPU, item(max_rung=Rung.DRAIN, score=0.97)),))
    waits = ACTS + '[[defaults.rules]]\nrungs = ["drain"]\nmode = "advise"\n'
    again = replay(frozen(case=drains), parse_policy(waits))
    assert again.then == Stand(Effect.EXCLUDED, Rung.DRAIN)
    assert again.now == Stand(Effect.EXCLUDED, Rung.EXCLUDE, advised=Rung.DRAIN)
