"""/v1/incidents."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.incidents import repository
from gpuwarden_server.incidents.ports import IncidentDesk
from gpuwarden_server.incidents.repository import IncidentFilter
from gpuwarden_server.incidents.schemas import (
    IncidentDetailView,
    IncidentPage,
    IncidentView,
    ReasonBody,
    incident_detail,
    incident_view,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import FaultClass, Severity
from gpuwarden_verdict.incidents.domain import Incident

_Phase = Literal["open", "acknowledged", "mitigated", "resolved", "live"]


def incidents_router(state: Database, desk: IncidentDesk) -> APIRouter:
    """Routes of incidents."""
    router = APIRouter(prefix="/v1/incidents", tags=["incidents"])

    @router.get("", summary="Incidents, newest first; phase live is every one not resolved")
    def list_incidents(
        phase: _Phase | None = None,
        node: Annotated[str | None, Query(description="only of this node")] = None,
        entity: Annotated[str | None, Query(description="only of this GPU, NIC …")] = None,
        severity: Severity | None = None,
        fault_class: FaultClass | None = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> IncidentPage:
        wanted = IncidentFilter(phase, node, entity, severity, fault_class)
        with state.read() as connection:
            found = repository.read_page(connection, wanted, decode_cursor(cursor), limit + 1)
        page = found[:limit]
        more = len(found) > limit
        last = Cursor(page[-1].opened_at, page[-1].id) if more else None
        return IncidentPage(
            items=[incident_view(incident) for incident in page],
            next_cursor=encode_cursor(last) if last else None,
        )

    @router.get("/{incident_id}", summary="One incident with its history")
    def read_incident(incident_id: str) -> IncidentDetailView:
        incident = require(incident_id)
        with state.read() as connection:
            moves = repository.read_moves(connection, incident_id)
        return incident_detail(incident, moves)

    @router.post("/{incident_id}/acknowledge", summary="Say that a person has seen it")
    def acknowledge(incident_id: str, body: ReasonBody, caller: Caller) -> IncidentView:
        require(incident_id)
        incident = desk.acknowledge(incident_id, caller.name, caller.key_id, body.reason)
        return incident_view(incident)

    @router.post("/{incident_id}/clear", summary="Close it; it comes back on new evidence only")
    def clear(incident_id: str, body: ReasonBody, caller: Caller) -> IncidentView:
        require(incident_id)
        return incident_view(desk.clear(incident_id, caller.name, caller.key_id, body.reason))

    def require(incident_id: str) -> Incident:
        with state.read() as connection:
            incident = repository.read_one(connection, incident_id)
        if incident is None:
            raise ProblemError(
                404, "not_found", f"no incident {incident_id!r}", "See GET /v1/incidents."
            )
        return incident

    return router
