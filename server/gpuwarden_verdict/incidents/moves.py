"""Moves that people make, and what a revoke leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuwarden_verdict.incidents.domain import (
    INCIDENT_MOVES,
    Acquittal,
    Incident,
    IncidentMove,
    IncidentPhase,
)

GPUWARDEN = "gpuwarden"
"""Author of moves that no person made."""

ACQUITTAL_S = 86400.0
"""How long a revoke holds against the same evidence."""


class LifecycleError(Exception):
    """A move that the incident's phase does not allow; the message names both."""


def acknowledge(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """A person has seen it.

    Raises:
        LifecycleError: It is no longer open.
    """
    return _moved(incident, IncidentPhase.ACKNOWLEDGED, by, reason, now)


def retire(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """Close the incident of an entity that has left the fleet.

    Raises:
        LifecycleError: It is resolved already.
    """
    return _moved(incident, IncidentPhase.RESOLVED, by, reason, now)


def acquit(incident: Incident, by: str, reason: str, now: float) -> IncidentMove:
    """A revoke: the incident may not decide again for ACQUITTAL_S unless it gets more severe.

    Nor does it speak for other devices: two GPUs that are not read are both the node's.
    """
    places = {place for item in incident.evidence for place in item.places}
    acquitted = replace(
        incident,
        acquitted_until=now + ACQUITTAL_S,
        acquitted_severity=incident.severity,
        acquitted_class=incident.fault_class,
        acquitted_places=tuple(sorted(places)),
        updated_at=now,
    )
    return IncidentMove(acquitted, incident.phase, reason, by, now, evidence_only=True)


def acquit_all(
    incidents: Sequence[Incident], by: str, reason: str, now: float
) -> list[IncidentMove]:
    """Acquit every open incident of one target, as a revoke does."""
    return [
        acquit(incident, by, reason, now)
        for incident in incidents
        if incident.phase is not IncidentPhase.RESOLVED
    ]


def acquittals_of(incidents: Sequence[Incident], now: float) -> tuple[Acquittal, ...]:
    """Acquittals that still hold at `now`.

    They outlive their incident: the same fault opened anew within the time is still acquitted, so
    pass resolved incidents of the last ACQUITTAL_S too.
    """
    return tuple(
        Acquittal(
            entity=incident.entity,
            fault_class=incident.acquitted_class or incident.fault_class,
            severity=incident.acquitted_severity or incident.severity,
            until=incident.acquitted_until,
        )
        for incident in incidents
        if incident.acquitted_until is not None and holds_acquittal(incident, now)
    )


def holds_acquittal(incident: Incident, now: float) -> bool:
    """Whether a revoke against the incident itself holds at `now`."""
    return incident.acquitted_until is not None and incident.acquitted_until > now


def _moved(
    incident: Incident, phase: IncidentPhase, by: str, reason: str, now: float
) -> IncidentMove:
    if phase not in INCIDENT_MOVES[incident.phase]:
        raise LifecycleError(f"incident {incident.id} is {incident.phase}, it cannot be {phase}")
    resolved_at = now if phase is IncidentPhase.RESOLVED else None
    moved = replace(incident, phase=phase, updated_at=now, resolved_at=resolved_at)
    return IncidentMove(moved, incident.phase, reason, by, now)
