"""Makes the doors; the app starts and stops what runs in them."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog
from fastapi import APIRouter

from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.health import HealthBoard
from gpuwarden_server.core.meters import Meters
from gpuwarden_server.diagnosis.progress import ProgressBook
from gpuwarden_server.doors.endpoints import RemoteWriteHandler
from gpuwarden_server.doors.job_ends import JobEndDoor, JobEndParts
from gpuwarden_server.doors.meters import DoorMeters
from gpuwarden_server.doors.progress import ProgressParts, progress_router
from gpuwarden_server.doors.remote_write import DoorParts, RemoteWriteDoor
from gpuwarden_server.doors.routes import OutsideParts, outside_router
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.store.database import Store
from gpuwarden_verdict.engine.facts import FleetFacts

LOOK_ROUND_S = 0.25
_log = structlog.get_logger(__name__)


class Base(Protocol):
    """What the doors are built on, as the app has it."""

    @property
    def settings(self) -> Settings:
        """The operator's."""

    @property
    def store(self) -> Store:
        """The database."""

    @property
    def ring(self) -> KeyRing:
        """Valid keys."""

    @property
    def sessions(self) -> Sessions:
        """Who speaks for which node."""

    @property
    def directory(self) -> FleetDirectory:
        """Nodes and GPUs."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def meters(self) -> Meters:
        """The server's own metrics."""

    @property
    def board(self) -> HealthBoard:
        """Probes of /readyz."""


def make_doors(base: Base, service: IngestService, facts: FleetFacts) -> Doors:
    """The doors, which /readyz watches.

    Args:
        base: What they are built on.
        service: Takes batches and events.
        facts: Who is retired.
    """
    doors = Doors(base, service, facts)
    base.board.add_probe("doors", doors.probe)
    return doors


def make_progress_router(base: Base, service: IngestService, book: ProgressBook) -> APIRouter:
    """The route by which training processes tell of their steps.

    Args:
        base: What it is built on.
        service: Takes events.
        book: Where steps are kept.
    """
    return progress_router(
        ProgressParts(
            state=base.store.state,
            book=book,
            service=service,
            directory=base.directory,
            clock=base.clock,
            registry=base.meters.registry,
        )
    )


class Doors:
    """The doors as a part of the app.

    Attributes:
        remote_write: The raw handler of POST /api/v1/write.
        router: Routes of alerts and events.
    """

    def __init__(self, base: Base, service: IngestService, facts: FleetFacts) -> None:
        settings = base.settings
        meters = DoorMeters(base.meters.registry)
        self.router = outside_router(
            OutsideParts(
                service=service,
                directory=base.directory,
                facts=facts,
                clock=base.clock,
                meters=meters,
                node_labels=settings.node_label_names,
                future_tolerance_s=settings.future_tolerance_s,
                job_ends=JobEndDoor(
                    JobEndParts(
                        state=base.store.state,
                        service=service,
                        directory=base.directory,
                        facts=facts,
                        clock=base.clock,
                        future_tolerance_s=settings.future_tolerance_s,
                    )
                ),
            )
        )
        self._door = RemoteWriteDoor(
            DoorParts(
                database=base.store.state,
                service=service,
                sessions=base.sessions,
                directory=base.directory,
                clock=base.clock,
                meters=meters,
                node_labels=settings.node_label_names,
                gone_after_s=settings.gone_after_s,
                future_tolerance_s=settings.future_tolerance_s,
            )
        )
        self.remote_write = RemoteWriteHandler(base.ring, self._door, meters)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Remember what an earlier process was told, and begin to read pages that wait."""
        await asyncio.to_thread(self._door.load)
        self._task = asyncio.create_task(self._rounds(), name="doors")

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; on the event loop."""
        self._door.rename(old, new)

    def probe(self) -> str | None:
        """For /readyz: None while pages are read."""
        ended = self._task is not None and self._task.done()
        return "the task that reads remote write has ended" if ended else None

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(LOOK_ROUND_S)
            try:
                await self._door.settle()
            except ProblemError:
                continue  # the database tells of its own trouble; the looks are kept
            except Exception as error:
                _log.error("door_round_failed", worker="doors", exc_info=error)
