"""What an incident is. How it moves is in `lifecycle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane


class IncidentPhase(StrEnum):
    """Life of an incident; each move is a stored fact with reason and author."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    MITIGATED = "mitigated"  # all evidence has cleared; it must stay so for the dwell
    RESOLVED = "resolved"


INCIDENT_MOVES = MappingProxyType(
    {
        IncidentPhase.OPEN: frozenset(
            {IncidentPhase.ACKNOWLEDGED, IncidentPhase.MITIGATED, IncidentPhase.RESOLVED}
        ),
        IncidentPhase.ACKNOWLEDGED: frozenset({IncidentPhase.MITIGATED, IncidentPhase.RESOLVED}),
        IncidentPhase.MITIGATED: frozenset({IncidentPhase.OPEN, IncidentPhase.RESOLVED}),
        IncidentPhase.RESOLVED: frozenset[IncidentPhase](),
    }
)


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One piece of evidence, as kept with the incident.

    Attributes:
        detector: Who said it.
        sentence: What it said, with numbers.
        score: 0..1.
        severity: Urgency.
        persistence: How the condition ends.
        acts_alone: May decide without corroboration.
        first_at: Epoch seconds of the first sight.
        last_at: Epoch seconds of the latest sight.
        expires_at: From when it counts no longer unless renewed.
        count: Occurrences.
        numbers: Latest measured values.
        event_ids: Latest events behind it, at most 20.
        plane: Kind of evidence.
        action: Recommended by it.
        fault_class: Where it says the fault lies.
        max_rung: Highest rung it may support.
        echo: Follows from another fault.
        application_possible: A program's bug can cause it.
        boot_id: Boot in which it was last seen.
        received_at: Epoch seconds when it was first noted here; settling counts from it.
        cleared_at: Since when evidence of recovery holds, None while it stands.
        flaps: How often it came back after it had cleared.
        sources: Where the latest occurrence was read.
        thresholds: Limits that the numbers were held against.
        places: PCI addresses that it spoke of where it is the node's for want of a better entity
            (no NVML), the first 64.
        job: Job that ran there at the latest occurrence ("slurm:4711"), "" for none that is known.
        former_jobs: Jobs that ran there at earlier occurrences, the latest 8.
        model: Version of the learnt model that said it last, "" for a rule.
    """

    detector: str
    sentence: str
    score: float
    severity: Severity
    persistence: Persistence
    acts_alone: bool
    first_at: float
    last_at: float
    expires_at: float
    count: int
    numbers: Mapping[str, float]
    event_ids: tuple[str, ...]
    plane: Plane = Plane.EVENTS
    action: RecommendedAction = RecommendedAction.NONE
    fault_class: FaultClass = FaultClass.UNKNOWN
    max_rung: Rung = Rung.EXCLUDE
    echo: bool = False
    application_possible: bool = False
    boot_id: str = ""
    received_at: float = 0.0
    cleared_at: float | None = None
    flaps: int = 0
    sources: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    job: str = ""
    former_jobs: tuple[str, ...] = ()
    model: str = ""

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs in which it occurred, as far as they are known."""
        return (*self.former_jobs, self.job) if self.job else self.former_jobs


@dataclass(frozen=True, slots=True)
class Incident:
    """A fault of one entity, from first evidence to recovery.

    Attributes:
        id: "inc-" and 12 hex digits.
        entity: What is at fault.
        fault_class: Where; a better later cause may re-label it.
        severity: Highest of the live evidence.
        phase: Where in its life.
        why: What decides: the evidence that weighs most, then the first sign before it.
        action: Recommended.
        confidence: 0..1.
        opened_at: Epoch seconds.
        updated_at: Epoch seconds.
        resolved_at: Epoch seconds, None while it lives.
        boot_id: Boot in which it began.
        evidence: By detector.
        parent_id: Incident of the place that is the cause, None else.
        acquitted_until: Epoch seconds until which a revoke holds, None else.
        acquitted_severity: Severity at the revoke: only a higher one, or another class, may
            decide again.
        acquitted_class: Class at the revoke: a re-labelled incident is not acquitted any more.
        acquitted_places: PCI addresses that the evidence spoke of at the revoke: what speaks of
            another may decide.
        held: Maintenance under which nothing is decided about it, in words; "" for none.
    """

    id: str
    entity: EntityRef
    fault_class: FaultClass
    severity: Severity
    phase: IncidentPhase
    why: str
    action: RecommendedAction
    confidence: float
    opened_at: float
    updated_at: float
    resolved_at: float | None
    boot_id: str
    evidence: tuple[EvidenceItem, ...]
    parent_id: str | None = None
    acquitted_until: float | None = None
    acquitted_severity: Severity | None = None
    acquitted_class: FaultClass | None = None
    acquitted_places: tuple[str, ...] = ()
    held: str = ""


@dataclass(frozen=True, slots=True)
class IncidentMove:
    """A stored fact: an incident changed.

    Attributes:
        incident: The incident after the move.
        before: Phase before, None where it was opened.
        reason: Why, in words.
        author: "gpuwarden" or the operator's key name.
        at: Epoch seconds.
        evidence_only: True where the phase did not change: new evidence or another label.
    """

    incident: Incident
    before: IncidentPhase | None
    reason: str
    author: str
    at: float
    evidence_only: bool = False


@dataclass(frozen=True, slots=True)
class Acquittal:
    """What a revoke leaves behind, also after its incident is resolved.

    Attributes:
        entity: Target of the revoked decision.
        fault_class: Class that may not decide again.
        severity: Only a higher one may.
        until: Epoch seconds.
    """

    entity: EntityRef
    fault_class: FaultClass
    severity: Severity
    until: float
