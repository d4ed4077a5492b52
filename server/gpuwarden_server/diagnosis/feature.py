"""Diagnoses as a part of the app."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter

from gpuwarden_server.diagnosis.desk import DiagnosisDesk, DiagnosisParts
from gpuwarden_server.diagnosis.endpoints import diagnoses_router
from gpuwarden_server.diagnosis.record import DiagnosisRecord


class Diagnoses:
    """Answers, keeps what was answered, and finds it again."""

    def __init__(self, parts: DiagnosisParts) -> None:
        self._desk = DiagnosisDesk(parts)
        self._record = DiagnosisRecord(parts.state, parts.clock)

    def routers(self) -> Iterable[APIRouter]:
        """Routes of diagnoses."""
        yield diagnoses_router(self._desk, self._record)
