"""Checkpoints as a part of the app: looks for them in history while jobs run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog
from fastapi import APIRouter
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.checkpoints.endpoints import checkpoints_router
from gpuwarden_server.checkpoints.repository import save_all
from gpuwarden_server.diagnosis.desk import DiagnosisParts
from gpuwarden_server.diagnosis.reading import Asked, WindowReader
from gpuwarden_server.history.domain import SHAPES, Level
from gpuwarden_server.jobs import repository
from gpuwarden_server.jobs.domain import JobRun
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.diagnosis.saves import Save, find_saves
from gpuwarden_wire.metrics import EntityKind

LOOK_BACK_S = 2 * 3600.0
"""A checkpoint that takes longer is not found."""
MOST_NODES = 64
"""Nodes of a job that are read; of a larger one these stand for all."""
MOST_JOBS = 100
_KINDS = (EntityKind.GPU, EntityKind.NODE, EntityKind.DISK, EntityKind.MOUNT)
_log = structlog.get_logger(__name__)


class Checkpoints:
    """Finds checkpoints, keeps them, and answers from what is kept."""

    def __init__(self, parts: DiagnosisParts, every_s: float) -> None:
        """Make the part.

        Args:
            parts: History and what stands beside it.
            every_s: Seconds between two looks; 0: it does not look.
        """
        self._parts = parts
        self._every_s = every_s
        self._reader = WindowReader(parts.history.reader, parts.directory, parts.placements)
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def routers(self) -> Iterable[APIRouter]:
        """Routes of checkpoints."""
        yield checkpoints_router(self._parts.state, self._parts.clock)

    async def start(self) -> None:
        """Begin to look."""
        if self._every_s > 0:
            self._task = asyncio.create_task(self._run(), name="checkpoints")

    async def stop(self) -> None:
        """End; a look that is under way goes on to the end of its job."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.look()

    async def look(self) -> None:
        """Look at what ran lately, the largest jobs first, one after the other."""
        try:
            end = self._parts.clock.now() // 60 * 60.0
            for runs in await asyncio.to_thread(self._jobs, end - LOOK_BACK_S, end):
                saves = await asyncio.to_thread(self._saves, runs, end)
                if saves:
                    write = self._parts.state.writer.submit(partial(save_all, saves=saves))
                    await asyncio.wrap_future(write)
        except (WriteFailed, SQLAlchemyError) as error:
            if not self._failing:
                _log.warning("checkpoints_not_kept", reason=str(error))
            self._failing = True
        else:
            if self._failing:
                _log.info("checkpoints_kept_again")
            self._failing = False

    def _jobs(self, begin: float, end: float) -> list[list[JobRun]]:
        with self._parts.state.read() as connection:
            runs = repository.read_runs_between(connection, begin, end)
        by_job: dict[str, list[JobRun]] = {}
        for run in runs:
            if self._parts.directory.node(run.node_id):
                by_job.setdefault(run.job, []).append(run)
        return sorted(by_job.values(), key=len, reverse=True)[:MOST_JOBS]

    def _saves(self, runs: Sequence[JobRun], end: float) -> Sequence[Save]:
        nodes = tuple(dict.fromkeys(run.node_id for run in runs))
        chosen = nodes[:: max(1, -(-len(nodes) // MOST_NODES))]
        begin = end - LOOK_BACK_S
        step_s = SHAPES[Level.MINUTE].step_s
        asked = Asked(chosen, tuple(runs), begin, begin, end, Level.MINUTE, step_s, _KINDS)
        window = self._reader.read(asked)
        grown = len(nodes) / len(chosen)
        return [
            replace(one, nodes=round(one.nodes * grown), size_bytes=one.size_bytes * grown)
            for job in window.jobs
            for one in find_saves(window, job)
        ]
