"""/v1/diagnoses."""

from __future__ import annotations

from fastapi import APIRouter

from gpuwarden_server.diagnosis.desk import DiagnosisDesk
from gpuwarden_server.diagnosis.schemas import DiagnosisBody, DiagnosisView, diagnosis_view


def diagnoses_router(desk: DiagnosisDesk) -> APIRouter:
    """Routes of diagnoses."""
    router = APIRouter(prefix="/v1", tags=["why"])

    @router.post(
        "/diagnoses",
        summary="Where a job or the fleet is slow: who is to blame, who is not, and since when",
    )
    def diagnose(body: DiagnosisBody) -> DiagnosisView:
        return diagnosis_view(desk.diagnose(body.job, body.begin, body.end, body.past_s))

    return router
