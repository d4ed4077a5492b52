"""A person's word that an incident is over: it comes back on new evidence only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwarden_verdict.entities import SEVERITY_RANK, EntityRef, Severity
from gpuwarden_verdict.incidents.domain import (
    INCIDENT_MOVES,
    Incident,
    IncidentMove,
    IncidentPhase,
)
from gpuwarden_verdict.incidents.moves import LifecycleError
from gpuwarden_verdict.signals import Signal

GAP_S = 300.0
"""A reading that was not seen for so long and is back is new evidence."""
SCORE_STEP = 0.1
SEEN_STEP_S = 60.0
"""How exactly is kept until when a reading went on: each step is stored."""


@dataclass(frozen=True, slots=True)
class Clearance:
    """What a person knew of one detector's evidence, and put aside.

    Attributes:
        entity: What it speaks about.
        detector: Whose evidence.
        severity: Its severity then: a higher one is new.
        score: Its score then: one that is higher by SCORE_STEP is new.
        at: Epoch seconds of the person's word: what happens later is new.
        seen_at: Until when a reading has gone on since, epoch seconds.
    """

    entity: EntityRef
    detector: str
    severity: Severity
    score: float
    at: float
    seen_at: float

    def covers(self, signal: Signal, now: float) -> bool:
        """Whether a signal says nothing that the person did not know."""
        graver = SEVERITY_RANK[signal.severity] > SEVERITY_RANK[self.severity]
        if graver or signal.score >= self.score + SCORE_STEP:
            return False
        if signal.event_ids:
            return signal.observed_at <= self.at
        return now - self.seen_at <= GAP_S


class Sieve:
    """Tells what is new in one target's signals from what a person has cleared, in one pass.

    A reading that goes on stays known; one that is new ends what the person said of it.
    """

    def __init__(self, known_of: Callable[[EntityRef, str], Clearance | None], now: float) -> None:
        """Make one.

        Args:
            known_of: What was cleared of an entity's evidence, by detector; None for nothing.
            now: Epoch seconds.
        """
        self._known_of = known_of
        self._now = now
        self._seen: dict[tuple[EntityRef, str], Clearance] = {}
        self._ended: dict[tuple[EntityRef, str], Clearance] = {}

    @property
    def seen(self) -> tuple[Clearance, ...]:
        """Those whose reading goes on, as they are to be kept from now on."""
        return tuple(self._seen.values())

    @property
    def ended(self) -> tuple[Clearance, ...]:
        """Those that hold no more."""
        return tuple(self._ended.values())

    def is_new(self, signal: Signal) -> bool:
        """Whether a signal says what no person has cleared; ask in order of arrival."""
        name = signal.entity, signal.detector
        known = None if name in self._ended else self._known_of(*name)
        if known is None:
            return True
        if not known.covers(signal, self._now):
            self._seen.pop(name, None)
            self._ended[name] = known
            return True
        if not signal.event_ids and self._now - known.seen_at >= SEEN_STEP_S:
            self._seen[name] = replace(known, entity=signal.entity, seen_at=self._now)
        return False


def clear(
    incident: Incident, by: str, reason: str, now: float
) -> tuple[IncidentMove, tuple[Clearance, ...]]:
    """Close an incident by a person's word.

    Raises:
        LifecycleError: It is resolved already.
    """
    if IncidentPhase.RESOLVED not in INCIDENT_MOVES[incident.phase]:
        raise LifecycleError(f"incident {incident.id} is {incident.phase}: nothing to clear")
    closed = replace(incident, phase=IncidentPhase.RESOLVED, updated_at=now, resolved_at=now)
    known = tuple(
        Clearance(incident.entity, item.detector, item.severity, item.score, now, now)
        for item in incident.evidence
    )
    return IncidentMove(closed, incident.phase, f"cleared: {reason}", by, now), known
