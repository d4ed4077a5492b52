"""The exclusion feed as a value: what a client holds, and how each message changes it.

Pure. Rules: a lower epoch of the same feed is ignored; another feed_id is a full resync, held
against the client's own floor; an empty set counts only with a valid epoch and count; count and
digest are checked after every step, and a mismatch asks for the whole set.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_runtime.plan_records import PlannedLeave, write_plans
from gpuwarden_runtime.records import Exclusion, ExclusionChange, ExclusionSet


@dataclass(frozen=True, slots=True)
class FeedState:
    """The last set that this client took over.

    Attributes:
        feed_id: Random id of the server's database.
        epoch: Position in that feed.
        exclusions: By "entity_kind:entity".
        planned: Leaves that will become exclusions.
    """

    feed_id: str
    epoch: int
    exclusions: Mapping[str, Exclusion]
    planned: tuple[PlannedLeave, ...] = ()

    @property
    def event_id(self) -> str:
        """Last-Event-ID that asks for what came after."""
        return f"{self.feed_id}:{self.epoch}"


@dataclass(frozen=True, slots=True)
class Floor:
    """What a resync may never take from this client.

    Attributes:
        nodes: Nodes that the client uses.
        min_usable: How many of them must stay usable; 0 accepts every set.
    """

    nodes: frozenset[str] = frozenset()
    min_usable: int = 0


class Outcome(StrEnum):
    """What a message did."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"  # confirms what is held
    IGNORED = "ignored"  # older than what is held
    NEEDS_SET = "needs_set"  # the whole set must be fetched
    INVALID = "invalid"  # contradicts itself; what is held stays
    BELOW_FLOOR = "below_floor"  # a resync that would take too much; what is held stays


@dataclass(frozen=True, slots=True)
class FeedStep:
    """Result of one message: the state to hold from now on, what happened, and why in words."""

    state: FeedState | None
    outcome: Outcome
    note: str = ""


def digest_of(keys: Iterable[str]) -> str:
    """SHA-256 in hex of the sorted "entity_kind:entity" keys, a line each."""
    return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()


def apply_set(held: FeedState | None, received: ExclusionSet, floor: Floor) -> FeedStep:
    """Take over a whole set.

    Args:
        held: What is held, None for nothing yet.
        received: Answer of GET /v1/exclusions, or a set from the cache.
        floor: Only a set of another feed is held against it: within one feed the server's own caps
            stand before every change, but a restored database speaks of another time.
    """
    exclusions = {item.key: item for item in received.exclusions}
    fault = _contradiction(received, exclusions)
    if fault:
        return FeedStep(held, Outcome.INVALID, fault)
    state = FeedState(
        received.feed_id, received.epoch, MappingProxyType(exclusions), received.planned
    )
    if held is None:
        return FeedStep(state, Outcome.APPLIED)
    if held.feed_id != received.feed_id:
        taken = _taken_below(floor, exclusions.values())
        if taken:
            return FeedStep(held, Outcome.BELOW_FLOOR, taken)
        return FeedStep(state, Outcome.APPLIED, f"feed {received.feed_id} replaces {held.feed_id}")
    if received.epoch < held.epoch:
        note = f"epoch {received.epoch} is behind {held.epoch}"
        return FeedStep(held, Outcome.IGNORED, note)
    same = received.epoch == held.epoch and exclusions.keys() == held.exclusions.keys()
    return FeedStep(state, Outcome.UNCHANGED if same else Outcome.APPLIED)


def apply_change(held: FeedState | None, change: ExclusionChange) -> FeedStep:
    """Take over one change; whatever does not follow from what is held asks for the whole set."""
    if held is None or held.feed_id != change.feed_id:
        return FeedStep(held, Outcome.NEEDS_SET, f"change of another feed: {change.feed_id}")
    if change.epoch <= held.epoch:
        note = f"epoch {change.epoch} is not past {held.epoch}"
        return FeedStep(held, Outcome.IGNORED, note)
    exclusions = dict(held.exclusions)
    for item in change.removed:
        exclusions.pop(item.key, None)
    exclusions.update((item.key, item) for item in change.added)
    if len(exclusions) != change.count or digest_of(exclusions) != change.digest:
        note = f"epoch {change.epoch}: count or digest does not match"
        return FeedStep(held, Outcome.NEEDS_SET, note)
    planned = held.planned if change.planned is None else change.planned
    state = FeedState(change.feed_id, change.epoch, MappingProxyType(exclusions), planned)
    return FeedStep(state, Outcome.APPLIED)


def apply_position(held: FeedState | None, position: ExclusionChange) -> FeedStep:
    """Hold what we have against the server's position, sent when a stream begins."""
    if held is None or held.feed_id != position.feed_id:
        return FeedStep(held, Outcome.NEEDS_SET, f"the server is at feed {position.feed_id}")
    if position.epoch < held.epoch:
        note = f"epoch {position.epoch} is behind {held.epoch}"
        return FeedStep(held, Outcome.IGNORED, note)
    if position.epoch == held.epoch and position.digest == digest_of(held.exclusions):
        return FeedStep(held, Outcome.UNCHANGED)
    return FeedStep(held, Outcome.NEEDS_SET, f"the server is at epoch {position.epoch}")


def as_set(state: FeedState) -> ExclusionSet:
    """The state in the form that is sent and cached."""
    return ExclusionSet(
        feed_id=state.feed_id,
        epoch=state.epoch,
        count=len(state.exclusions),
        digest=digest_of(state.exclusions),
        exclusions=tuple(state.exclusions.values()),
        plans=write_plans(state.planned),
    )


def _contradiction(received: ExclusionSet, exclusions: Mapping[str, Exclusion]) -> str:
    if not received.feed_id or received.epoch < 0:
        return f"no valid position: feed {received.feed_id!r}, epoch {received.epoch}"
    if received.count != len(exclusions):
        return f"count says {received.count}, the list holds {len(exclusions)}"
    if received.digest != digest_of(exclusions):
        return "the digest does not match the list"
    return ""


def _taken_below(floor: Floor, exclusions: Iterable[Exclusion]) -> str:
    out = {item.node_id for item in exclusions} & floor.nodes
    left = len(floor.nodes) - len(out)
    if floor.min_usable and left < floor.min_usable:
        return f"would leave {left} of our {len(floor.nodes)} nodes, at least {floor.min_usable}"
    return ""
