"""/v1/diagnoses."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from gpuwarden_server.access.authorisation import Caller
from gpuwarden_server.core.pages import (
    LARGEST_PAGE,
    Cursor,
    CursorQuery,
    decode_cursor,
    encode_cursor,
)
from gpuwarden_server.diagnosis.desk import DiagnosisDesk
from gpuwarden_server.diagnosis.record import DiagnosisRecord
from gpuwarden_server.diagnosis.repository import DiagnosisFilter
from gpuwarden_server.diagnosis.schemas import (
    LATEST_TIME,
    DiagnosisBody,
    DiagnosisPage,
    StoredDiagnosisView,
    row_view,
)
from gpuwarden_verdict.diagnosis import CulpritKind

_Time = Annotated[float | None, Query(ge=0, le=LATEST_TIME, description="epoch seconds")]


def diagnoses_router(desk: DiagnosisDesk, record: DiagnosisRecord) -> APIRouter:
    """Routes of diagnoses."""
    router = APIRouter(prefix="/v1", tags=["why"])

    @router.post(
        "/diagnoses",
        summary="Where a job or the fleet is slow: who is to blame, who is not, and since when",
    )
    def diagnose(body: DiagnosisBody, caller: Caller) -> StoredDiagnosisView:
        answer = desk.diagnose(body.job, body.begin, body.end, body.past_s)
        return record.keep(answer, caller.name, caller.key_id)

    @router.get("/diagnoses", summary="Diagnoses that were made, the newest first")
    def list_diagnoses(
        job: Annotated[
            str | None, Query(description="KIND:ID; empty: of the fleet", max_length=300)
        ] = None,
        node: Annotated[
            str | None, Query(description="of the job, hit, or blamed", max_length=253)
        ] = None,
        culprit: CulpritKind | Literal["undecided"] | None = None,
        begin: _Time = None,
        end: _Time = None,
        cursor: CursorQuery = None,
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 100,
    ) -> DiagnosisPage:
        wanted = DiagnosisFilter(job, node, culprit, begin, end)
        found = record.page(wanted, decode_cursor(cursor), limit + 1)
        page = found[:limit]
        last = Cursor(page[-1].at, page[-1].id) if len(found) > limit else None
        return DiagnosisPage(
            items=[row_view(one) for one in page],
            next_cursor=None if last is None else encode_cursor(last),
        )

    @router.get("/diagnoses/{diagnosis_id}", summary="One of them, as it was answered")
    def read_diagnosis(diagnosis_id: str) -> StoredDiagnosisView:
        return record.read(diagnosis_id)

    return router
