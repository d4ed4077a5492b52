"""Diagnoses as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog
from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.diagnosis.desk import DiagnosisDesk, DiagnosisParts
from gpuwarden_server.diagnosis.endpoints import diagnoses_router
from gpuwarden_server.diagnosis.progress import ProgressBook
from gpuwarden_server.diagnosis.record import DiagnosisRecord
from gpuwarden_server.store.writer import WriteFailed

SAVE_EVERY_S = 20.0
_log = structlog.get_logger(__name__)


class Diagnoses:
    """Answers, keeps what was answered, and finds it again.

    Attributes:
        progress: What running jobs tell of their steps.
    """

    def __init__(self, parts: DiagnosisParts) -> None:
        self.progress = ProgressBook(parts.state)
        self._desk = DiagnosisDesk(parts, self.progress.step_seconds)
        self._record = DiagnosisRecord(parts.state, parts.clock)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def routers(self) -> Iterable[APIRouter]:
        """Routes of diagnoses."""
        yield diagnoses_router(self._desk, self._record)

    async def start(self) -> None:
        """Begin to store what jobs tell."""
        self._task = asyncio.create_task(self._run(), name="job_progress")

    async def stop(self) -> None:
        """End, with what was told last stored."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await asyncio.to_thread(self._save)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        try:
            self.progress.save()
        except (WriteFailed, SQLAlchemyError) as error:
            if not self._failing:
                _log.warning("job_progress_not_stored", reason=str(error))
            self._failing = True
        else:
            if self._failing:
                _log.info("job_progress_stored_again")
            self._failing = False
