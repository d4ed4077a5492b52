"""How incidents move: opened, joined and closed on evidence. Pure: values in, moves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuwarden_verdict.context import CHAIN_S
from gpuwarden_verdict.entities import SEVERITY_RANK, EntityRef, FaultClass, Severity
from gpuwarden_verdict.incidents.domain import (
    EvidenceItem,
    Incident,
    IncidentMove,
    IncidentPhase,
)
from gpuwarden_verdict.incidents.evidence import (
    Standing,
    cleared_by,
    confidence_of,
    highest_severity,
    is_cause,
    join_signal,
    live_items,
    new_item,
    standing_of,
    statement_of,
    weight_of,
)
from gpuwarden_verdict.incidents.moves import (
    ACQUITTAL_S,
    GPUWARDEN,
    LifecycleError,
    acknowledge,
    acquit,
    acquit_all,
    acquittals_of,
    holds_acquittal,
    retire,
)
from gpuwarden_verdict.incidents.storms import find_storms
from gpuwarden_verdict.signals import Recovery, RecoveryKind, Signal
from gpuwarden_wire.metrics import EntityKind

__all__ = [
    "ACQUITTAL_S",
    "GPUWARDEN",
    "LifecycleError",
    "acknowledge",
    "acquit",
    "acquit_all",
    "acquittals_of",
    "advance",
    "find_storms",
    "retire",
]

_CHECKS = frozenset({RecoveryKind.CHECK_PASSED, RecoveryKind.CHECK_AFTER_REPAIR})


def advance(
    open_incidents: Sequence[Incident],
    signals: Sequence[Signal],
    recoveries: Sequence[Recovery],
    now: float,
    new_id: Callable[[], str],
    *,
    dwell_of: Callable[[Incident], float] = lambda _incident: 600.0,
) -> list[IncidentMove]:
    """Moves that signals, recoveries and the passing of time bring; at most one an incident.

    An incident ends on evidence only: a level whose reading cleared, a boot's fault after another
    boot, anything but a part's fault after a passed check, a part's fault after a check that
    follows a repair, and a plain event when it expires. That no signal comes says nothing.

    Args:
        open_incidents: Of one entity (event path) or of the fleet (sweep). All open incidents of
            the signals' entities must be among them.
        signals: In order of arrival.
        recoveries: Applied before the signals.
        now: Server's UTC, epoch seconds.
        new_id: Gives "inc-" ids.
        dwell_of: How long recovery must hold, seconds, by pool and class (policy).
    """
    drafts = [_Draft(incident) for incident in open_incidents]
    by_entity: dict[EntityRef, list[_Draft]] = {}
    for draft in drafts:
        by_entity.setdefault(draft.incident.entity, []).append(draft)
    for recovery in recoveries:
        for draft in drafts:
            draft.recover(recovery, now)
    for signal in signals:
        siblings = by_entity.setdefault(signal.entity, [])
        opened = _place(signal, siblings, now, new_id)
        if opened is not None:
            siblings.append(opened)
            drafts.append(opened)
    moves = (draft.close(now, dwell_of(draft.incident)) for draft in drafts)
    return [move for move in moves if move is not None]


class _Draft:
    """One incident while `advance` works on it."""

    def __init__(self, incident: Incident, *, opened: bool = False) -> None:
        self.incident = incident
        self._before = None if opened else incident.phase
        self._reasons: list[str] = [f"opened: {incident.why}"] if opened else []
        self._author = GPUWARDEN
        self._checked = False

    def recover(self, recovery: Recovery, now: float) -> None:
        """Take a recovery in where it speaks of this incident's entity."""
        if not _covers(recovery, self.incident.entity):
            return
        evidence = tuple(cleared_by(item, recovery, now) for item in self.incident.evidence)
        if evidence != self.incident.evidence:
            self.incident = replace(self.incident, evidence=evidence)
            self._reasons.append(recovery.reason)
            self._author = recovery.author
            self._checked = self._checked or recovery.kind in _CHECKS

    def add(self, signal: Signal, now: float) -> None:
        """Join a signal as evidence."""
        evidence = list(self.incident.evidence)
        for n, item in enumerate(evidence):
            if item.detector == signal.detector:
                joined = join_signal(item, signal, now)
                evidence[n] = joined.item
                self._note(joined.news)
                break
        else:
            evidence.append(new_item(signal, now))
            self._note(f"{signal.detector}: {signal.sentence}")
        self.incident = replace(self.incident, evidence=tuple(evidence))

    def relabel(self, signal: Signal, now: float) -> None:
        """Take a better cause: another class, the cause first among the evidence."""
        self.add(signal, now)
        cause = next(i for i in self.incident.evidence if i.detector == signal.detector)
        rest = tuple(item for item in self.incident.evidence if item is not cause)
        self._note(f"cause is {signal.fault_class}, not {self.incident.fault_class}")
        self.incident = replace(
            self.incident,
            fault_class=signal.fault_class,
            evidence=(cause, *rest),
        )

    def close(self, now: float, dwell_s: float) -> IncidentMove | None:
        """The move that all this amounts to, None where nothing is worth storing."""
        phase = self._phase(now, dwell_s)
        if phase is not self._before and self._before is not None:
            self._note(_PHASE_REASONS[phase])
        live = live_items(self.incident.evidence, now)
        severity = highest_severity(live, self.incident.severity)
        if severity is not self.incident.severity:
            self._note(f"severity {severity}, was {self.incident.severity}")
        if not self._reasons:
            return None
        if live:
            leading = max(live, key=weight_of)
            self.incident = replace(
                self.incident,
                why=statement_of(leading, self.incident.evidence),
                confidence=confidence_of(live),
                action=leading.action,
            )
        self.incident = replace(
            self.incident,
            phase=phase,
            severity=severity,
            updated_at=now,
            resolved_at=now if phase is IncidentPhase.RESOLVED else None,
        )
        return IncidentMove(
            incident=self.incident,
            before=self._before,
            reason="; ".join(self._reasons),
            author=self._author,
            at=now,
            evidence_only=phase is self._before,
        )

    def _note(self, reason: str) -> None:
        if reason:
            self._reasons.append(reason)

    def _phase(self, now: float, dwell_s: float) -> IncidentPhase:
        own = [item for item in self.incident.evidence if not item.echo]
        dwell = 0.0 if self._checked else dwell_s
        standings = {standing_of(item, now, dwell) for item in own}
        if standings <= {Standing.OVER}:
            return IncidentPhase.RESOLVED
        if Standing.LIVE not in standings:
            return IncidentPhase.MITIGATED
        if self.incident.phase is IncidentPhase.MITIGATED:
            return IncidentPhase.OPEN
        return self.incident.phase


_PHASE_REASONS = {
    IncidentPhase.OPEN: "the fault is back",
    IncidentPhase.ACKNOWLEDGED: "acknowledged",
    IncidentPhase.MITIGATED: "all evidence has cleared, it must stay so for the dwell",
    IncidentPhase.RESOLVED: "no evidence stands any more",
}


def _covers(recovery: Recovery, entity: EntityRef) -> bool:
    if recovery.entity == entity:
        return True
    of_node = recovery.entity.kind is EntityKind.NODE and recovery.entity.node_id == entity.node_id
    return of_node and recovery.kind is not RecoveryKind.READING_CLEAR


def _place(
    signal: Signal, siblings: Sequence[_Draft], now: float, new_id: Callable[[], str]
) -> _Draft | None:
    """Join a signal to its incident, or open one; echoes and bare notes open none."""
    holder = _holder(signal, siblings)
    if holder is not None:
        holder.add(signal, now)
        return None
    same_class = _find(siblings, signal.fault_class)
    chained = _chain(signal, [draft for draft in siblings if _may_chain(signal, draft, now)])
    if signal.echo:
        home = chained or same_class
        if home is not None:
            home.add(signal, now)
        return None
    if same_class is not None and (chained is None or is_cause(signal.fault_class)):
        same_class.add(signal, now)
        return None
    if chained is not None:
        _join_chain(signal, chained, now)
        return None
    if signal.severity is Severity.INFO:
        return None
    return _Draft(_opened(signal, now, new_id()), opened=True)


def _holder(signal: Signal, siblings: Sequence[_Draft]) -> _Draft | None:
    """The incident that already holds this level, whatever it is labelled now."""
    if signal.event_ids:
        return None
    holding = (
        d for d in siblings if any(i.detector == signal.detector for i in d.incident.evidence)
    )
    return next(holding, None)


def _find(siblings: Sequence[_Draft], fault_class: FaultClass) -> _Draft | None:
    return next((d for d in siblings if d.incident.fault_class is fault_class), None)


def _chain(signal: Signal, siblings: Sequence[_Draft]) -> _Draft | None:
    """The incident whose first cause is within CHAIN_S of an event, the nearest first.

    Only a GPU's faults chain: on a node, things that have nothing to do with each other happen
    within seconds. Levels that a sweep reads are conditions of their own.
    """
    if signal.entity.kind is not EntityKind.GPU or not signal.event_ids:
        return None
    near = [
        (gap, n)
        for n, draft in enumerate(siblings)
        if (gap := _gap(signal, draft.incident.evidence)) <= CHAIN_S
    ]
    return siblings[min(near)[1]] if near else None


def _may_chain(signal: Signal, draft: _Draft, now: float) -> bool:
    """Whether a signal may join an incident as a part of its chain.

    An acquitted incident decides nothing: what it has not held yet, another class or a higher
    severity of it, came after the person's word and must be free to decide by itself.
    """
    incident = draft.incident
    if signal.echo or not holds_acquittal(incident, now):
        return True
    rank = SEVERITY_RANK[signal.severity]
    return any(
        item.fault_class is signal.fault_class and SEVERITY_RANK[item.severity] >= rank
        for item in incident.evidence
        if not item.echo
    )


def _gap(signal: Signal, evidence: Sequence[EvidenceItem]) -> float:
    gaps = [
        min(abs(signal.observed_at - item.first_at), abs(signal.observed_at - item.last_at))
        for item in evidence
        if not item.echo and (item.event_ids or item.fault_class is FaultClass.UNKNOWN)
    ]
    return min(gaps, default=float("inf"))


def _join_chain(signal: Signal, draft: _Draft, now: float) -> None:
    """First cause wins; one that is clearly better, or the first real one, re-labels."""
    present = draft.incident.fault_class
    leading = max(draft.incident.evidence, key=weight_of)
    better = weight_of(new_item(signal, now))[:2] > weight_of(leading)[:2]
    if is_cause(signal.fault_class) and (better or not is_cause(present)):
        draft.relabel(signal, now)
    else:
        draft.add(signal, now)


def _opened(signal: Signal, now: float, incident_id: str) -> Incident:
    return Incident(
        id=incident_id,
        entity=signal.entity,
        fault_class=signal.fault_class,
        severity=signal.severity,
        phase=IncidentPhase.OPEN,
        why=signal.sentence,
        action=signal.action,
        confidence=signal.score,
        opened_at=now,
        updated_at=now,
        resolved_at=None,
        boot_id=signal.boot_id,
        evidence=(new_item(signal, now),),
    )
