"""Diagnoses as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import structlog
from fastapi import APIRouter
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.diagnosis.desk import DiagnosisDesk, DiagnosisParts
from gpuwarden_server.diagnosis.endpoints import diagnoses_router
from gpuwarden_server.diagnosis.progress import ProgressBook
from gpuwarden_server.diagnosis.record import DiagnosisRecord
from gpuwarden_server.diagnosis.sampling import JobSampler, Snapshots
from gpuwarden_server.diagnosis.trigger import AlarmJudge, Trigger, TriggerParts
from gpuwarden_server.store.writer import WriteFailed

SAVE_EVERY_S = 20.0
LOOK_S = 60.0
"""A job's watch counts looks as minutes."""
_log = structlog.get_logger(__name__)


class Diagnoses:
    """Answers, keeps what was answered, and finds it again.

    Attributes:
        progress: What running jobs tell of their steps.
        trigger: Asks by itself.
    """

    def __init__(
        self,
        parts: DiagnosisParts,
        snapshots: Snapshots,
        judge: AlarmJudge,
        registry: CollectorRegistry,
        unasked: bool,
    ) -> None:
        """Make the part; `start` makes it run.

        Args:
            parts: What diagnoses are made from.
            snapshots: The fleet's columns.
            judge: Told what is found unasked.
            registry: Metrics.
            unasked: Whether it asks by itself where a job became slower.
        """
        self.progress = ProgressBook(parts.state)
        self._desk = DiagnosisDesk(parts, self.progress.step_seconds)
        self._record = DiagnosisRecord(parts.state, parts.clock)
        self._judge = judge
        self._unasked = unasked
        self.trigger = Trigger(
            TriggerParts(
                state=parts.state,
                running=parts.directory,
                sampler=JobSampler(snapshots, self.progress.lately),
                desk=self._desk,
                record=self._record,
                clock=parts.clock,
                registry=registry,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._failing = False

    def routers(self) -> Iterable[APIRouter]:
        """Routes of diagnoses."""
        yield diagnoses_router(self._desk, self._record)

    async def start(self) -> None:
        """Begin to store what jobs tell, and to look at them."""
        await asyncio.to_thread(self.trigger.recall)
        self._tasks.append(asyncio.create_task(self._run(), name="job_progress"))
        if self._unasked:
            self._tasks.append(asyncio.create_task(self._watch(), name="diagnosis_trigger"))

    async def stop(self) -> None:
        """End, with what was told last stored."""
        self._stopping.set()
        if self._tasks:
            # Not cut off: a diagnosis under way writes, and the store closes after this.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.to_thread(self._save)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        self.trigger.rename(old, new)

    async def _run(self) -> None:
        while not await self._rest(SAVE_EVERY_S):
            await asyncio.to_thread(self._save)

    async def _watch(self) -> None:
        while not await self._rest(LOOK_S):
            try:
                await asyncio.to_thread(self.trigger.look, self._judge)
            except Exception as error:
                _log.error("diagnosis_look_failed", worker="diagnosis", exc_info=error)

    async def _rest(self, seconds: float) -> bool:
        """Wait; whether the server stops meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
        return self._stopping.is_set()

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
