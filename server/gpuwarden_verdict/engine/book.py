"""What is true now: live incidents and decisions, states, the feed. In memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gpuwarden_verdict.engine.domain import (
    HEALTHY,
    Key,
    Outcome,
    StateMove,
    key_of,
    move_key,
)
from gpuwarden_verdict.entities import EntityRef, EntityState, FaultClass, renamed_ref
from gpuwarden_verdict.exclusions import ends_own_exclusion
from gpuwarden_verdict.incidents.clearing import GAP_S, Clearance
from gpuwarden_verdict.incidents.domain import Acquittal, Incident, IncidentPhase
from gpuwarden_verdict.incidents.kin import Kin
from gpuwarden_verdict.policy.document import LIVE_PHASES, Decision, DecisionMove, Pin
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_verdict.policy.states import EntityRecord
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.metrics import EntityKind

T = TypeVar("T", Incident, Acquittal, Decision, Clearance, Pin)
_REPAIR_ENDED = (EntityState.IN_REPAIR, EntityState.PROBATION)
_AT_REST = frozenset({EntityState.HEALTHY, EntityState.RETIRED})


@dataclass(frozen=True, slots=True)
class Kept:
    """What was true when somebody stopped; nothing, for a fleet that was never judged.

    Attributes:
        refs: Targets by key.
        records: States by key.
        checks: Newest passed checks by key, epoch seconds.
        repaired_at: When each GPU's repair ended, epoch seconds by uuid.
        incidents: Live ones.
        acquittals: Those that hold.
        decisions: Live ones.
        clearances: What people cleared.
        returned_at: When gpuwarden's own latest exclusion of each target ended, by evidence or at
            its expiry, epoch seconds by key.
        pins: Those that hold or will.
    """

    refs: Mapping[Key, EntityRef] = field(default_factory=dict)
    records: Mapping[Key, EntityRecord] = field(default_factory=dict)
    checks: Mapping[Key, float] = field(default_factory=dict)
    repaired_at: Mapping[str, float] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    acquittals: Sequence[Acquittal] = ()
    decisions: Sequence[Decision] = ()
    clearances: Sequence[Clearance] = ()
    returned_at: Mapping[Key, float] = field(default_factory=dict)
    pins: Sequence[Pin] = ()


class Book:
    """Everything that is live, by decision target; changed only by outcomes that are true.

    Attributes:
        risks: Latest risks, by target.
        kin: Common causes that the latest sweep found.
        retired: Retired nodes; replaced whole, so that any thread may read it.
        repaired_at: When each GPU's repair ended; replaced whole, so that any thread may read it.
    """

    def __init__(self, kept: Kept) -> None:
        """Go on from what was kept."""
        self._incidents: dict[Key, dict[str, Incident]] = defaultdict(dict)
        self._by_id: dict[str, Incident] = {}
        self._acquittals: dict[Key, dict[FaultClass, Acquittal]] = defaultdict(dict)
        self._decisions: dict[Key, dict[str, Decision]] = defaultdict(dict)
        self._pins: dict[Key, dict[str, Pin]] = defaultdict(dict)
        self._by_node: dict[str, set[Key]] = defaultdict(set)
        self._refs, self._records = dict(kept.refs), dict(kept.records)
        self._checks, self._returned = dict(kept.checks), dict(kept.returned_at)
        self.risks: dict[Key, Risk] = {}
        self.kin = Kin()
        self.retired: frozenset[str] = frozenset()
        self.repaired_at: Mapping[str, float] = kept.repaired_at
        for key, ref in self._refs.items():
            self._by_node[ref.node_id].add(key)
        for incident in kept.incidents:
            self._put_incident(incident)
        for acquittal in kept.acquittals:
            self._put_acquittal(acquittal)
        for decision in kept.decisions:
            self._put_decision(decision)
        for pin in kept.pins:
            self._put_pin(pin)
        self._clearances = _by_name(kept.clearances)
        self._note_retired()

    def ref(self, key: Key) -> EntityRef | None:
        """The reference behind a key; None for a target that was never judged."""
        return self._refs.get(key)

    def refs(self, kind: EntityKind) -> list[EntityRef]:
        """All targets of a kind that were ever judged."""
        return [ref for ref in self._refs.values() if ref.kind is kind]

    def incidents_of(self, key: Key) -> tuple[Incident, ...]:
        """Live incidents of a target, those of a node's NICs and disks included."""
        return tuple(self._incidents.get(key, {}).values())

    def acquittals_of(self, key: Key, now: float) -> tuple[Acquittal, ...]:
        """Acquittals of a target that hold at `now`."""
        held = self._acquittals.get(key)
        if not held:
            return ()
        return tuple(one for one in held.values() if one.until > now)

    def clearance_of(self, entity: EntityRef, detector: str) -> Clearance | None:
        """What a person has cleared of a detector's evidence of an entity."""
        return self._clearances.get((key_of(entity), detector)) if self._clearances else None

    def is_cleared(self, entity: EntityRef, detector: str, now: float) -> bool:
        """Whether a person has cleared a detector's reading of an entity, and it goes on."""
        known = self.clearance_of(entity, detector)
        return known is not None and now - known.seen_at <= GAP_S

    def decisions_of(self, key: Key) -> tuple[Decision, ...]:
        """Live decisions of a target."""
        return tuple(self._decisions.get(key, {}).values())

    def pins_of(self, key: Key) -> tuple[Pin, ...]:
        """Pins on a target that hold or will."""
        held = self._pins.get(key)
        return tuple(held.values()) if held else ()

    def pins(self) -> Iterator[Pin]:
        """All pins that hold or will."""
        for held in self._pins.values():
            yield from held.values()

    def find_pin(self, pin_id: str) -> Pin | None:
        """A pin by id."""
        return next((one for one in self.pins() if one.id == pin_id), None)

    def record_of(self, key: Key) -> EntityRecord:
        """State of a target; healthy where it was never judged."""
        return self._records.get(key, HEALTHY)

    def checked_at(self, key: Key) -> float | None:
        """Newest passed check of a target."""
        return self._checks.get(key)

    def returned_at(self, key: Key) -> float | None:
        """When gpuwarden's own last exclusion of a target ended, None for never.

        A revoke is no such end, and neither is that of a pin or planned leave.
        """
        return self._returned.get(key)

    def targets_on(self, node_id: str) -> frozenset[Key]:
        """Targets on a node that were ever judged."""
        return frozenset(self._by_node.get(node_id, ()))

    def live_targets(self) -> set[Key]:
        """Targets that time alone may move: something open, decided, or on the way back."""
        moving = {k for k, record in self._records.items() if record.state not in _AT_REST}
        with_incidents = {key for key, held in self._incidents.items() if held}
        pinned = {key for key, held in self._pins.items() if held}
        with_decisions = {key for key, held in self._decisions.items() if held}
        return moving | with_incidents | with_decisions | pinned

    def incidents(self) -> Iterator[Incident]:
        """All live incidents."""
        for held in self._incidents.values():
            yield from held.values()

    def told_events(self) -> dict[str, set[str]]:
        """Ids of the events that the evidence of live incidents rests on, by node."""
        told: dict[str, set[str]] = {}
        for incident in self.incidents():
            for item in incident.evidence:
                if item.event_ids:
                    told.setdefault(incident.entity.node_id, set()).update(item.event_ids)
        return told

    def records(self) -> Iterator[tuple[EntityRef, EntityRecord]]:
        """Every target that ever left the healthy state, and its state."""
        for key, record in self._records.items():
            yield self._refs[key], record

    def decisions(self) -> Iterator[Decision]:
        """All live decisions."""
        for held in self._decisions.values():
            yield from held.values()

    def find_incident(self, incident_id: str) -> Incident | None:
        """A live incident by id."""
        return self._by_id.get(incident_id)

    def find_decision(self, decision_id: str) -> Decision | None:
        """A live decision by id."""
        return next((one for one in self.decisions() if one.id == decision_id), None)

    def apply(self, outcomes: Iterable[Outcome]) -> None:
        """Make outcomes true."""
        for outcome in outcomes:
            for move in outcome.incident_moves:
                self._put_incident(move.incident)
            for incident in outcome.renewed_incidents:
                self._put_incident(incident)
            for decision_move in outcome.decision_moves:
                self._put_decision(decision_move.decision)
                self._note_return(decision_move)
            for decision in outcome.renewed_decisions:
                self._put_decision(decision)
            for acquittal in outcome.acquittals:
                self._put_acquittal(acquittal)
            for known in outcome.clearances:
                self._clearances[key_of(known.entity), known.detector] = known
            for ended in outcome.ended_clearances:
                self._clearances.pop((key_of(ended.entity), ended.detector), None)
            for pin in (*outcome.pins, *outcome.changed_pins):
                self._put_pin(pin)
            for pin in outcome.ended_pins:
                self._pins[key_of(pin.entity)].pop(pin.id, None)
            key = self._know(outcome.target)
            if outcome.state_move is not None:
                self._records[key] = outcome.state_move.after
                self._note_repair(outcome.state_move)
                self._note_retired_move(key, outcome.state_move)
            if outcome.checked_at is not None:
                self._checks[key] = outcome.checked_at

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        for key in self._by_node.pop(old, set()):
            to = self._know(renamed_ref(self._refs.pop(key), old, new))
            move_key(self._records, key, to)
            move_key(self._checks, key, to)
            move_key(self._returned, key, to)
            move_key(self.risks, key, to)
            incidents = self._incidents.pop(key, {})
            self._incidents[to] = {i: _renamed(one, old, new) for i, one in incidents.items()}
            acquittals = self._acquittals.pop(key, {})
            self._acquittals[to] = {c: _renamed(one, old, new) for c, one in acquittals.items()}
            decisions = self._decisions.pop(key, {})
            self._decisions[to] = {i: _renamed(one, old, new) for i, one in decisions.items()}
            pins = self._pins.pop(key, {})
            self._pins[to] = {i: _renamed(one, old, new) for i, one in pins.items()}
        self._clearances = _by_name(_renamed(c, old, new) for c in self._clearances.values())
        self._note_retired()

    def _note_retired(self) -> None:
        retired = (k for k, record in self._records.items() if record.state is EntityState.RETIRED)
        self.retired = frozenset(name for _, name in retired)

    def _note_retired_move(self, key: Key, move: StateMove) -> None:
        if move.after.state is EntityState.RETIRED:
            self.retired |= {key[1]}
        elif move.before.state is EntityState.RETIRED:
            self.retired -= {key[1]}

    def _note_return(self, move: DecisionMove) -> None:
        if ends_own_exclusion(move):
            self._returned[key_of(move.decision.entity)] = move.at

    def _note_repair(self, move: StateMove) -> None:
        ended = (move.before.state, move.after.state)
        if ended == _REPAIR_ENDED and move.entity.kind is EntityKind.GPU:
            self.repaired_at = {**self.repaired_at, move.entity.key: move.after.since}

    def _know(self, ref: EntityRef) -> Key:
        key = key_of(ref)
        known = self._refs.get(key)
        if known is not None and known.node_id != ref.node_id:
            self._by_node[known.node_id].discard(key)  # a board that moved to another node
        self._refs[key] = ref
        self._by_node[ref.node_id].add(key)
        return key

    def _put_incident(self, incident: Incident) -> None:
        key = self._know(decision_target(incident.entity))
        if incident.phase is not IncidentPhase.RESOLVED:
            self._incidents[key][incident.id] = incident
            self._by_id[incident.id] = incident
        else:
            self._incidents[key].pop(incident.id, None)
            self._by_id.pop(incident.id, None)

    def _put_acquittal(self, acquittal: Acquittal) -> None:
        key = self._know(decision_target(acquittal.entity))
        self._acquittals[key][acquittal.fault_class] = acquittal

    def _put_pin(self, pin: Pin) -> None:
        self._pins[self._know(pin.entity)][pin.id] = pin

    def _put_decision(self, decision: Decision) -> None:
        key = self._know(decision.entity)
        if decision.phase in LIVE_PHASES:
            self._decisions[key][decision.id] = decision
        else:
            self._decisions[key].pop(decision.id, None)


def _by_name(clearances: Iterable[Clearance]) -> dict[tuple[Key, str], Clearance]:
    return {(key_of(one.entity), one.detector): one for one in clearances}


def _renamed(one: T, old: str, new: str) -> T:
    return replace(one, entity=renamed_ref(one.entity, old, new))
