"""What the judge works on: findings about a target, and what it concluded from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.incidents.clearing import Clearance
from gpuwarden_verdict.incidents.domain import Acquittal, Incident, IncidentMove
from gpuwarden_verdict.policy.document import Decision, DecisionMove, Pin
from gpuwarden_verdict.policy.snapshots import DecisionSnapshot
from gpuwarden_verdict.policy.states import EntityRecord
from gpuwarden_verdict.signals import Recovery, Signal
from gpuwarden_wire.metrics import EntityKind

T = TypeVar("T")
Key = tuple[str, str]
"""(kind, key) of an entity; what incidents, decisions and states are looked up by."""

HEALTHY = EntityRecord(EntityState.HEALTHY, 0.0)


def key_of(ref: EntityRef) -> Key:
    """The look-up key of an entity."""
    return ref.kind.value, ref.key


def renamed_key(key: Key, old: str, new: str) -> Key:
    """The look-up key of a target (a node or GPU) once node `old` is called `new`."""
    return (key[0], new) if key == (EntityKind.NODE.value, old) else key


def move_key(kept: dict[Key, T], key: Key, to: Key) -> None:
    """Put what is kept under one key, if anything, under another."""
    if key in kept:
        kept[to] = kept.pop(key)


@dataclass(slots=True)
class Step:
    """Recoveries, and the signals that came after them."""

    recoveries: list[Recovery] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """What is new about one target (a GPU, or a node with its NICs and disks).

    Attributes:
        target: What a decision would act on.
        steps: Evidence of now and statements that a condition has ended, in order of arrival: a
            boot or a passed check ends what came before it, and not what came after.
        history: Evidence of an older boot or from before a passed check: opens and closes, never
            acts.
        checked_at: Newest passed check among them, None for none.
    """

    target: EntityRef
    steps: list[Step] = field(default_factory=list)
    history: list[Signal] = field(default_factory=list)
    checked_at: float | None = None

    def add(self, recoveries: Iterable[Recovery] = (), signals: Iterable[Signal] = ()) -> None:
        """Append what came next; recoveries before signals."""
        recovered, said = list(recoveries), list(signals)
        if not self.steps or (recovered and self.steps[-1].signals):
            self.steps.append(Step())
        self.steps[-1].recoveries += recovered
        self.steps[-1].signals += said

    def recoveries(self) -> Iterator[Recovery]:
        """All recoveries, in order."""
        return (recovery for step in self.steps for recovery in step.recoveries)


@dataclass(frozen=True, slots=True)
class StateMove:
    """A stored fact: an entity's state changed."""

    entity: EntityRef
    before: EntityRecord
    after: EntityRecord
    reason: str
    author: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the judge concluded about one target; nothing of it is true before it is committed.

    Attributes:
        target: The target.
        incident_moves: Facts, in order.
        history: Facts of the past, put on record: nobody is told.
        renewed_incidents: Incidents whose evidence was only renewed: stored, no fact.
        decision_moves: Facts, in order.
        renewed_decisions: Decisions whose expiry was only renewed.
        state_move: Change of state, None for none.
        checked_at: Newest passed check, None where unchanged.
        snapshots: JSON of what new decisions were made from, by decision id.
        frozen: What its decisions rested on, to judge it again; None where none moved.
        acquittals: What a revoke leaves behind.
        clearances: What a person put aside with an incident, new or seen to go on.
        ended_clearances: Those that hold no more: something new was seen.
        pins: Pins that a person set.
        ended_pins: Pins that a person, or time, ended.
        changed_pins: Pins whose terms, or whose target's name, are other ones from now on.
        relocated: The target sits elsewhere than before: its state is kept, and the feed is told,
            with the new place.
    """

    target: EntityRef
    incident_moves: tuple[IncidentMove, ...] = ()
    history: tuple[IncidentMove, ...] = ()
    renewed_incidents: tuple[Incident, ...] = ()
    decision_moves: tuple[DecisionMove, ...] = ()
    renewed_decisions: tuple[Decision, ...] = ()
    state_move: StateMove | None = None
    checked_at: float | None = None
    snapshots: dict[str, str] = field(default_factory=dict)
    frozen: DecisionSnapshot | None = None
    acquittals: tuple[Acquittal, ...] = ()
    clearances: tuple[Clearance, ...] = ()
    ended_clearances: tuple[Clearance, ...] = ()
    pins: tuple[Pin, ...] = ()
    ended_pins: tuple[Pin, ...] = ()
    changed_pins: tuple[Pin, ...] = ()
    relocated: bool = False

    @property
    def changes_decisions(self) -> bool:
        """Whether the exclusion set, or what is planned, may differ afterwards."""
        moved = self.decision_moves or self.renewed_decisions or self.relocated
        return bool(moved or self.pins or self.ended_pins or self.changed_pins)

    @property
    def has_moves(self) -> bool:
        """Whether an incident or a state moved."""
        return bool(self.incident_moves or self.history or self.state_move)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return not (
            self.incident_moves
            or self.history
            or self.renewed_incidents
            or self.changes_decisions
            or self.state_move
            or self.checked_at is not None
            or self.acquittals
            or self.clearances
            or self.ended_clearances
        )


def merge_findings(many: Iterable[Findings]) -> dict[Key, Findings]:
    """Findings by target, those about the same target joined in order."""
    merged: dict[Key, Findings] = {}
    for one in many:
        known = merged.setdefault(key_of(one.target), Findings(one.target))
        for step in one.steps:
            known.add(step.recoveries, step.signals)
        known.history += one.history
        times = [at for at in (known.checked_at, one.checked_at) if at is not None]
        known.checked_at = max(times, default=None)
    return merged
