"""`reassess`: from what is new about one target to what follows. No I/O; nothing is true yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Findings, Key, Outcome, StateMove, Step, key_of
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.snapshot import snapshot_of
from gpuwarden_verdict.engine.sweep import RiskSource
from gpuwarden_verdict.entities import Contact, EntityRef, EntityState
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.behind import ParentKey
from gpuwarden_verdict.incidents.clearing import Sieve
from gpuwarden_verdict.incidents.closing import PENDING, Family, is_pending, relate
from gpuwarden_verdict.incidents.domain import Incident, IncidentMove, IncidentPhase
from gpuwarden_verdict.incidents.lifecycle import (
    GPUWARDEN,
    advance,
    find_storms,
    retire,
)
from gpuwarden_verdict.incidents.storms import may_be_storm
from gpuwarden_verdict.policy.document import DecisionMove, InMaintenance, Pin, PinKind, PoolPolicy
from gpuwarden_verdict.policy.evaluate import EntityCase, Hold, PoolLoad, decide
from gpuwarden_verdict.policy.guards import BY_PIN
from gpuwarden_verdict.policy.judgement import gated
from gpuwarden_verdict.policy.snapshots import DecisionSnapshot, snapshot_of_case
from gpuwarden_verdict.policy.states import EntityRecord, Trigger, judge_state, step_record
from gpuwarden_verdict.signals import RecoveryKind, Signal
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """What the judge must know of a target's node.

    Attributes:
        contact: Whether it is heard of.
        hold: What waits because further events of it are on their way.
        maintenance: Under which it is, in words; "" for none.
    """

    contact: Contact
    hold: Hold
    maintenance: str = ""


_OUT = frozenset({EntityState.EXCLUDED, EntityState.DRAINING})
Watch = Callable[[EntityCase, Sequence[DecisionMove], PoolPolicy, float], None]
"""Is told what was judged, what was decided, by which rules, and when (epoch seconds)."""


def unwatched(
    case: EntityCase, moves: Sequence[DecisionMove], pool: PoolPolicy, now: float
) -> None:
    """Where nobody looks on."""


class Judge:
    """Draws conclusions about one target at a time; used in the judge's thread."""

    def __init__(
        self,
        book: Book,
        pools: PoolBook,
        standing_of: Callable[[str], NodeStanding],
        new_id: Callable[[str], str],
        risks: RiskSource,
        watch: Watch = unwatched,
    ) -> None:
        """Make a judge.

        Args:
            book: What is true now.
            pools: Policy and loads.
            standing_of: What is known of a node, by node id.
            new_id: Makes an id that is new, from its prefix.
            risks: Asked whether what a score said may still exclude.
            watch: Looks on.
        """
        self._book = book
        self._pools = pools
        self._standing_of = standing_of
        self._new_id = new_id
        self._risks = risks
        self._watch = watch
        self._storms: frozenset[str] = frozenset()

    def look_for_storms(self) -> None:
        """Find what is an application's storm; once a pass, over all that is open."""
        suspects = [one for one in self._book.incidents() if may_be_storm(one)]
        self._storms = find_storms(suspects) if suspects else frozenset()

    def reassess(
        self, findings: Findings, now: float, pins: Sequence[Pin] | None = None
    ) -> Outcome:
        """What follows for one target.

        Args:
            findings: What is new about it; may be empty: time passes too.
            now: Epoch seconds.
            pins: Pins on it as they are to be; None: as they are.
        """
        key = key_of(findings.target)
        pins = self._book.pins_of(key) if pins is None else pins
        pool = self._pools.pool(findings.target.node_id)
        before = self._book.incidents_of(key)
        sieve = Sieve(self._book.clearance_of, now)
        for step in findings.steps:
            step.signals = [signal for signal in step.signals if sieve.is_new(signal)]
        moves, live = _advance(before, findings, now, pool, self._new_incident)
        moves, live = self._relate(findings.target, moves, live, now)
        record = self._checked_record(key, findings, now)
        decision_moves, frozen = self._decide(findings.target, live, record, pins, now)
        after = self._ended_record(key, record, decision_moves, now, pool.dwell_s)
        if after.state in _OUT and any(pin.check and pin.is_over(now) for pin in pins):
            after = step_record(after, Trigger.REPAIR_BEGUN, now)
        facts, renewed = _split(moves, before)
        history = _as_history(findings.history, live, now, self._new_incident)
        return Outcome(
            target=findings.target,
            incident_moves=tuple(facts),
            history=tuple(history),
            renewed_incidents=renewed,
            decision_moves=tuple(move for move in decision_moves if not self._renews(move)),
            renewed_decisions=tuple(m.decision for m in decision_moves if self._renews(m)),
            state_move=self._state_move(findings.target, after, decision_moves),
            checked_at=findings.checked_at,
            snapshots=self._snapshots(key, live, decision_moves),
            frozen=frozen,
            clearances=sieve.seen,
            ended_clearances=sieve.ended,
            ended_pins=self._ended_pins(key, pins, decision_moves, now),
        )

    def _ended_pins(
        self, key: Key, pins: Sequence[Pin], moves: Sequence[DecisionMove], now: float
    ) -> tuple[Pin, ...]:
        """Pins whose time is over, once nothing is out by them any more."""
        decisions = {one.id: one for one in self._book.decisions_of(key)}
        decisions |= {move.decision.id: move.decision for move in moves}
        out = any(d.decided_by == BY_PIN and covers(d) for d in decisions.values())
        return tuple(pin for pin in pins if pin.is_over(now) and not (out and pin.check))

    def _relate(
        self,
        target: EntityRef,
        moves: list[IncidentMove],
        live: tuple[Incident, ...],
        now: float,
    ) -> tuple[list[IncidentMove], tuple[Incident, ...]]:
        """Open incidents with their common causes and maintenance of now."""
        if not live or target.kind is EntityKind.PLACE:
            return moves, live
        family, maintenance = self._family(), self._standing_of(target.node_id).maintenance
        related = []
        for incident in live:
            change = relate(incident, family, maintenance, now)
            related.append(incident if change is None else change[0])
            if change is not None:
                moves = _with_change(moves, *change, now)
        return moves, tuple(related)

    def _is_pending(self, incident: Incident, family: Family, now: float) -> bool:
        behind = family.kin.members.get(incident.id)
        if behind is not None and self._book.is_cleared(*behind, now):
            return False  # a person says that the place is well
        return is_pending(incident, family, now)

    def _family(self) -> Family:
        book = self._book

        def parent(behind: ParentKey) -> Incident | None:
            place, detector = behind
            held = book.incidents_of(key_of(place))
            return next((i for i in held if _holds(i, detector)), None)

        return Family(book.kin, book.find_incident, parent)

    def _new_incident(self) -> str:
        return self._new_id("inc")

    def _decide(
        self,
        target: EntityRef,
        live: Sequence[Incident],
        record: EntityRecord,
        pins: Sequence[Pin],
        now: float,
    ) -> tuple[list[DecisionMove], DecisionSnapshot | None]:
        key = key_of(target)
        if target.kind is EntityKind.PLACE:  # it is looked at, and nothing is ever decided about it
            self._watch(EntityCase(target, tuple(live)), (), self._pools.pool(""), now)
            return [], None
        decided = self._book.decisions_of(key)
        if not (live or decided or pins):
            return [], None
        standing, pool = self._standing_of(target.node_id), self._pools.pool(target.node_id)
        if standing.contact is Contact.RETIRED:
            live, pins = (), ()  # what still stands ends, and nothing begins
        else:
            pins = (*pins, *self._node_allows(target))
        quiet = bool(standing.maintenance) and pool.in_maintenance is InMaintenance.HOLD
        if quiet and not (pins or any(one.decided_by == BY_PIN for one in decided)):
            return [], None
        family = self._family()
        case = EntityCase(
            entity=target,
            incidents=tuple(self._as_judged(one, family, now) for one in live),
            decisions=decided,
            state=record.state,
            contact=standing.contact,
            risk=self._book.risks.get(key),
            acquittals=self._book.acquittals_of(key, now),
            storms=self._storms,
            # Where maintenance holds evidence back, people's own words count all the same.
            hold=Hold.ALL if quiet else _hold(standing),
            seat=self._pools.seat_of(target.node_id),
            returned_at=self._book.returned_at(key),
            pins=tuple(pins),
        )
        loads = self._pools.loads()
        moves = decide(
            case,
            pool,
            self._pools.policy.version,
            self._pools.load(target.node_id),
            now,
            lambda: self._new_id("dec"),
        )
        self._pools.fold(target.node_id, moves)
        self._watch(case, moves, pool, now)
        return moves, self._frozen(case, loads, moves, now)

    def _frozen(
        self,
        case: EntityCase,
        loads: Mapping[str, PoolLoad],
        moves: Sequence[DecisionMove],
        now: float,
    ) -> DecisionSnapshot | None:
        """What the facts among the moves rested on; None where there is none."""
        if all(self._renews(move) for move in moves):
            return None
        node_id = case.entity.node_id
        return snapshot_of_case(
            case,
            self._pools.pool(node_id).name,
            self._pools.words(node_id),
            loads,
            (self._pools.policy.version, now, tuple(moves)),
        )

    def _node_allows(self, target: EntityRef) -> Iterable[Pin]:
        """Pins that keep a GPU's whole node in: they speak for the GPU too."""
        if target.kind is EntityKind.NODE:
            return ()
        node = EntityRef(EntityKind.NODE, target.node_id, target.node_id)
        return (pin for pin in self._book.pins_of(key_of(node)) if pin.kind is PinKind.ALLOW)

    def _as_judged(self, incident: Incident, family: Family, now: float) -> Incident:
        """An incident as it is decided about: a score weighs what its gate allows now."""
        entity = incident.entity
        pool = self._pools.pool(entity.node_id)
        told = gated(incident, lambda version: self._risks.may_exclude(entity.kind, version, pool))
        return replace(told, parent_id=PENDING) if self._is_pending(incident, family, now) else told

    def _checked_record(self, key: Key, findings: Findings, now: float) -> EntityRecord:
        record = self._book.record_of(key)
        passed = any(r.kind is RecoveryKind.CHECK_AFTER_REPAIR for r in findings.recoveries())
        return step_record(record, Trigger.CHECK_PASSED, now) if passed else record

    def _ended_record(
        self,
        key: Key,
        record: EntityRecord,
        moves: Sequence[DecisionMove],
        now: float,
        dwell_s: float,
    ) -> EntityRecord:
        decisions = {one.id: one for one in self._book.decisions_of(key)}
        decisions |= {move.decision.id: move.decision for move in moves}
        return judge_state(record, tuple(decisions.values()), now, dwell_s)

    def _state_move(
        self, target: EntityRef, after: EntityRecord, moves: Sequence[DecisionMove]
    ) -> StateMove | None:
        before = self._book.record_of(key_of(target))
        if after.state is before.state:
            return None
        return StateMove(target, before, after, _state_reason(before, after, moves), GPUWARDEN)

    def _renews(self, move: DecisionMove) -> bool:
        old = self._book.find_decision(move.decision.id)
        new = move.decision
        return old is not None and (old.phase, old.rung, old.guard, old.advised) == (
            new.phase,
            new.rung,
            new.guard,
            new.advised,
        )

    def _snapshots(
        self, key: Key, live: Sequence[Incident], moves: Sequence[DecisionMove]
    ) -> dict[str, str]:
        new = [move.decision for move in moves if move.before is None]
        risk = self._book.risks.get(key)
        return {decision.id: snapshot_of(decision, live, risk) for decision in new}


def _advance(
    before: Sequence[Incident],
    findings: Findings,
    now: float,
    pool: PoolPolicy,
    new_incident: Callable[[], str],
) -> tuple[list[IncidentMove], tuple[Incident, ...]]:
    """Moves of all steps in order, and what is open at the end; without a step, time passes."""
    live, moves = tuple(before), list[IncidentMove]()
    for step in findings.steps or [Step()]:
        made = advance(
            live,
            step.signals,
            step.recoveries,
            now,
            new_incident,
            dwell_of=lambda incident: pool.dwell_of(incident.fault_class),
        )
        live = _live_after(live, made)
        moves += made
    return moves, live


def _with_change(
    moves: list[IncidentMove], incident: Incident, reason: str, now: float
) -> list[IncidentMove]:
    """Moves with one more of an incident, joined to the one that it has in this pass."""
    last = next((m for m in reversed(moves) if m.incident.id == incident.id), None)
    if last is None:
        move = IncidentMove(incident, incident.phase, reason, GPUWARDEN, now, evidence_only=True)
        return [*moves, move]
    joined = replace(last, incident=incident, reason=f"{last.reason}; {reason}")
    return [joined if move is last else move for move in moves]


def _hold(standing: NodeStanding) -> Hold:
    """What of a node's decisions waits; under maintenance what needs corroboration does."""
    if standing.maintenance and standing.hold is Hold.NONE:
        return Hold.CORROBORATED
    return standing.hold


def _holds(incident: Incident, detector: str) -> bool:
    return any(item.detector == detector for item in incident.evidence)


def _live_after(before: Sequence[Incident], moves: Iterable[IncidentMove]) -> tuple[Incident, ...]:
    after = {incident.id: incident for incident in before}
    after |= {move.incident.id: move.incident for move in moves}
    return tuple(one for one in after.values() if one.phase is not IncidentPhase.RESOLVED)


def _split(
    moves: Iterable[IncidentMove], before: Sequence[Incident]
) -> tuple[list[IncidentMove], tuple[Incident, ...]]:
    """Facts worth a line in the history, and incidents that only got more of the same."""
    known = {incident.id: incident for incident in before}
    facts: list[IncidentMove] = []
    renewed: list[Incident] = []
    for move in moves:
        old = known.get(move.incident.id)
        if old is None or not move.evidence_only or _differs(old, move.incident):
            facts.append(move)
        else:
            renewed.append(move.incident)
    return facts, tuple(renewed)


def _differs(old: Incident, new: Incident) -> bool:
    return _told(old) != _told(new)


def _told(incident: Incident) -> tuple[object, ...]:
    """What people look at."""
    return (
        *(incident.fault_class, incident.severity, incident.action),
        *(incident.parent_id, incident.held),
        _detectors(incident),
    )


def _detectors(incident: Incident) -> frozenset[str]:
    return frozenset(item.detector for item in incident.evidence)


_PAST = "history: of an older boot, from before a passed check, or expired"


def _as_history(
    signals: Sequence[Signal],
    live: Sequence[Incident],
    now: float,
    new_incident: Callable[[], str],
) -> list[IncidentMove]:
    """Incidents that open and close at once: they are on record and never act."""
    taken = {(incident.entity, incident.fault_class) for incident in live}
    opened = advance((), signals, (), now, new_incident) if signals else []
    moves: list[IncidentMove] = []
    for move in opened:
        incident = move.incident
        if (incident.entity, incident.fault_class) not in taken:
            moves.append(move)
            if incident.phase is not IncidentPhase.RESOLVED:  # else its evidence expired long ago
                moves.append(retire(incident, GPUWARDEN, _PAST, now))
    return moves


def _state_reason(before: EntityRecord, after: EntityRecord, moves: Sequence[DecisionMove]) -> str:
    if moves:
        return moves[-1].reason
    if after.state is EntityState.IN_REPAIR:
        return "the planned leave is over: a passed check brings it back"
    if after.state is EntityState.PROBATION:
        return "a check passed after the repair"
    if before.state is EntityState.PROBATION:
        return "probation ended without a symptom"
    return "nothing speaks against it any more"
