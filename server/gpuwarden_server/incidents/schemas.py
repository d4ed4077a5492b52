"""JSON forms of incidents."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gpuwarden_server.core.bodies import Body
from gpuwarden_server.incidents.repository import StoredMove
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase

_EXAMPLE: JsonDict = {
    "id": "inc-3f9a0c1b2d4e",
    "entity_kind": "gpu",
    "entity": "GPU-5b1f0c9e-0000-4a3e-9d5f-2f6c8a1b7e33",
    "node_id": "gpu-017",
    "fault_class": "bus",
    "severity": "critical",
    "phase": "open",
    "why": "XID 79: GPU has fallen off the bus",
    "action": "reboot_node",
    "confidence": 0.98,
    "opened_at": 1764500000.1,
    "updated_at": 1764500000.1,
    "resolved_at": None,
    "boot_id": "9d2c…",
    "parent_id": None,
    "acquitted_until": None,
    "held": "",
    "evidence": [],
}


class ReasonBody(Body):
    """A person's word goes with a reason."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "checked by hand: sound"}]}
    )

    reason: str = Field(min_length=1, max_length=1000, description="Kept in history and audit.")


class EvidenceView(BaseModel):
    """One piece of evidence."""

    detector: str
    sentence: str
    score: float
    severity: Severity
    plane: str
    persistence: str
    acts_alone: bool
    echo: bool
    application_possible: bool
    first_at: float
    last_at: float
    expires_at: float
    cleared_at: float | None
    count: int
    numbers: dict[str, float]
    thresholds: dict[str, float]
    event_ids: list[str]


class IncidentView(BaseModel):
    """One incident."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    entity_kind: str
    entity: str
    node_id: str
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
    parent_id: str | None
    acquitted_until: float | None
    held: str = Field(description="maintenance under which nothing is decided about it, '' none")
    evidence: list[EvidenceView]


class MoveView(BaseModel):
    """A stored change of an incident."""

    before: str | None
    after: str
    fault_class: FaultClass
    severity: Severity
    reason: str
    author: str
    at: float


class IncidentDetailView(IncidentView):
    """One incident with its history, oldest first."""

    moves: list[MoveView]


class IncidentPage(BaseModel):
    """A page of incidents, newest first."""

    items: list[IncidentView]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page.")


def entity_form(ref: EntityRef) -> dict[str, str]:
    """How an entity stands in every JSON form."""
    return {"entity_kind": ref.kind.value, "entity": ref.key, "node_id": ref.node_id}


def incident_view(incident: Incident) -> IncidentView:
    """The JSON form of an incident."""
    return IncidentView(**_incident_form(incident))


def incident_detail(incident: Incident, moves: list[StoredMove]) -> IncidentDetailView:
    """The JSON form of an incident with its history."""
    told = [
        MoveView(
            before=move.before,
            after=move.after,
            fault_class=FaultClass(move.fault_class),
            severity=Severity(move.severity),
            reason=move.reason,
            author=move.author,
            at=move.at,
        )
        for move in moves
    ]
    return IncidentDetailView(**_incident_form(incident), moves=told)


def _incident_form(incident: Incident) -> dict[str, Any]:
    return {
        **entity_form(incident.entity),
        "id": incident.id,
        "fault_class": incident.fault_class,
        "severity": incident.severity,
        "phase": incident.phase,
        "why": incident.why,
        "action": incident.action,
        "confidence": incident.confidence,
        "opened_at": incident.opened_at,
        "updated_at": incident.updated_at,
        "resolved_at": incident.resolved_at,
        "boot_id": incident.boot_id,
        "parent_id": incident.parent_id,
        "acquitted_until": incident.acquitted_until,
        "held": incident.held,
        "evidence": [_evidence_view(item) for item in incident.evidence],
    }


def _evidence_view(item: EvidenceItem) -> EvidenceView:
    return EvidenceView(
        detector=item.detector,
        sentence=item.sentence,
        score=item.score,
        severity=item.severity,
        plane=item.plane.value,
        persistence=item.persistence.value,
        acts_alone=item.acts_alone,
        echo=item.echo,
        application_possible=item.application_possible,
        first_at=item.first_at,
        last_at=item.last_at,
        expires_at=item.expires_at,
        cleared_at=item.cleared_at,
        count=item.count,
        numbers=dict(item.numbers),
        thresholds=dict(item.thresholds),
        event_ids=list(item.event_ids),
    )
