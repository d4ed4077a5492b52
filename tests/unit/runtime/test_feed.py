from __future__ import annotations

from types import MappingProxyType

import msgspec
import pytest

from gpuwarden_runtime.feed import (
    FeedState,
    Floor,
    Outcome,
    apply_change,
    apply_position,
    apply_set,
    as_set,
    digest_of,
)
from gpuwarden_runtime.records import Exclusion, ExclusionChange, ExclusionSet

NO_FLOOR = Floor()


def exclusion(entity: str, node: str = "n1") -> Exclusion:
    return Exclusion(entity_kind="gpu", entity=entity, node_id=node, gpu_uuid=entity)


def state(feed: str, epoch: int, *entities: str) -> FeedState:
    items = {item.key: item for item in map(exclusion, entities)}
    return FeedState(feed, epoch, MappingProxyType(items))


def change(
    feed: str,
    epoch: int,
    after: FeedState,
    added: tuple[Exclusion, ...] = (),
    removed: tuple[Exclusion, ...] = (),
) -> ExclusionChange:
    return ExclusionChange(
        feed_id=feed,
        epoch=epoch,
        count=len(after.exclusions),
        digest=digest_of(after.exclusions),
        added=added,
        removed=removed,
    )


def test_digest_is_the_contracts() -> None:
    # printf 'gpu:A\nnode:b' | sha256sum
    assert digest_of(["node:b", "gpu:A"]) == (
        "ab0d7ff75f4aad5206301c0e11217d5e68f729c6fb926a21e07c0a33f64b854b"
    )


def test_first_set_is_taken() -> None:
    step = apply_set(None, as_set(state("f", 4, "A")), NO_FLOOR)
    assert step.outcome is Outcome.APPLIED
    assert step.state is not None
    assert step.state.event_id == "f:4"
    assert set(step.state.exclusions) == {"gpu:A"}


def test_lower_epoch_of_the_same_feed_is_ignored() -> None:
    held = state("f", 9, "A")
    step = apply_set(held, as_set(state("f", 8)), NO_FLOOR)
    assert (step.outcome, step.state) == (Outcome.IGNORED, held)
    step = apply_change(held, change("f", 9, state("f", 9)))
    assert (step.outcome, step.state) == (Outcome.IGNORED, held)
    step = apply_position(held, change("f", 3, state("f", 3)))
    assert (step.outcome, step.state) == (Outcome.IGNORED, held)


def test_new_feed_replaces_whatever_its_epoch() -> None:
    step = apply_set(state("f", 9, "A"), as_set(state("g", 1, "B")), NO_FLOOR)
    assert step.outcome is Outcome.APPLIED
    assert step.state is not None
    assert set(step.state.exclusions) == {"gpu:B"}


def test_new_feed_below_the_floor_is_not_taken() -> None:
    held = state("f", 9)
    floor = Floor(frozenset({"n1", "n2"}), min_usable=2)
    step = apply_set(held, as_set(state("g", 1, "A")), floor)
    assert (step.outcome, step.state) == (Outcome.BELOW_FLOOR, held)
    assert "1 of our 2 nodes" in step.note


def test_floor_does_not_hold_back_changes_within_a_feed() -> None:
    floor = Floor(frozenset({"n1"}), min_usable=1)
    step = apply_set(state("f", 9), as_set(state("f", 10, "A")), floor)
    assert step.outcome is Outcome.APPLIED


def test_empty_set_counts_with_valid_epoch_and_count() -> None:
    step = apply_set(state("f", 9, "A"), as_set(state("f", 10)), NO_FLOOR)
    assert step.outcome is Outcome.APPLIED
    assert step.state is not None
    assert not step.state.exclusions


@pytest.mark.parametrize(
    "wrong",
    [{"count": 2}, {"digest": "0" * 64}, {"feed_id": ""}, {"epoch": -1}],
)
def test_empty_set_that_contradicts_itself_never_counts(wrong: dict[str, int | str]) -> None:
    held = state("f", 9, "A")
    received = msgspec.structs.replace(as_set(state("f", 10)), **wrong)
    step = apply_set(held, received, NO_FLOOR)
    assert (step.outcome, step.state) == (Outcome.INVALID, held)
    assert step.note


def test_set_without_count_or_epoch_is_no_set() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"feed_id":"f","exclusions":[]}', type=ExclusionSet)


def test_change_adds_and_removes() -> None:
    held, after = state("f", 9, "A"), state("f", 10, "B")
    step = apply_change(
        held, change("f", 10, after, added=(exclusion("B"),), removed=(exclusion("A"),))
    )
    assert (step.outcome, step.state) == (Outcome.APPLIED, after)


def test_change_that_does_not_add_up_asks_for_the_set() -> None:
    held = state("f", 9, "A")
    missed = change("f", 11, state("f", 11, "A", "B", "C"), added=(exclusion("C"),))
    step = apply_change(held, missed)
    assert (step.outcome, step.state) == (Outcome.NEEDS_SET, held)


def test_change_of_another_feed_asks_for_the_set() -> None:
    step = apply_change(state("f", 9), change("g", 10, state("g", 10)))
    assert step.outcome is Outcome.NEEDS_SET


@pytest.mark.parametrize(
    ("position", "outcome"),
    [
        (state("f", 9, "A"), Outcome.UNCHANGED),
        (state("f", 10, "A"), Outcome.NEEDS_SET),
        (state("f", 9, "B"), Outcome.NEEDS_SET),
        (state("g", 9, "A"), Outcome.NEEDS_SET),
    ],
)
def test_position_is_held_against_ours(position: FeedState, outcome: Outcome) -> None:
    step = apply_position(state("f", 9, "A"), change(position.feed_id, position.epoch, position))
    assert step.outcome is outcome
