"""/v1/incidents/{incident_id}/verdict and /v1/labels."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.incidents.repository import IncidentFilter
from gpuwarden_server.learning.labels.desk import LabelDesk
from gpuwarden_server.learning.labels.schemas import (
    GivenVerdictView,
    LabelPage,
    VerdictBody,
    label_view,
)


def labels_router(desk: LabelDesk) -> APIRouter:
    """Routes of verdicts and labels."""
    router = APIRouter(prefix="/v1", tags=["learning"])

    @router.post(
        "/incidents/{incident_id}/verdict",
        summary="Say what an incident turned out to be; a later word corrects it",
    )
    def judge_incident(incident_id: str, body: VerdictBody, caller: Caller) -> GivenVerdictView:
        given = desk.judge(incident_id, body.verdict, body.note, caller)
        return GivenVerdictView(
            incident_id=incident_id,
            verdict=given.verdict,
            note=given.note,
            author=given.author,
            at=given.at,
        )

    @router.get("/labels", summary="What incidents turned out to be, newest first")
    def list_labels(
        node: Annotated[str | None, Query(description="only of this node")] = None,
        entity: Annotated[str | None, Query(description="only of this GPU, NIC …")] = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> LabelPage:
        wanted = IncidentFilter(node_id=node, entity=entity)
        found = desk.labels(wanted, decode_cursor(cursor), limit + 1)
        page = found[:limit]
        more = len(found) > limit
        oldest = page[-1][0].incident if more else None
        last = None if oldest is None else Cursor(oldest.opened_at, oldest.id)
        return LabelPage(
            items=[label_view(case, label) for case, label in page],
            next_cursor=encode_cursor(last) if last else None,
        )

    return router
