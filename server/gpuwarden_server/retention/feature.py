"""Retention as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.retention.repository import Found, Kept, delete_rows, find_old
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed

FIRST_PASS_S = 1.0
PASS_INTERVAL_S = 3600.0
ROWS_A_STEP = 500
# Between two steps: deletions take a small part of the writer's time, however many there are.
PAUSE_S = 0.1
DAY_S = 86_400.0
_log = structlog.get_logger(__name__)


class RetentionMeters:
    """What retention counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.deleted = Counter(
            "gpuwarden_retention_deleted_total",
            "Rows deleted since they were old; incidents and decisions with their moves are one.",
            ["table"],
            registry=registry,
        )
        self.seconds = Histogram(
            "gpuwarden_retention_pass_seconds",
            "A pass over all tables, pauses between its steps included.",
            buckets=(0.1, 1.0, 10.0, 60.0, 600.0, 3600.0),
            registry=registry,
        )
        self.failures = Counter(
            "gpuwarden_retention_failures_total",
            "Passes that the database cut short; the next one goes on.",
            registry=registry,
        )
        self.done_at = Gauge(
            "gpuwarden_retention_last_pass_timestamp_seconds",
            "When a pass last came to its end, epoch seconds; 0 none since the start.",
            registry=registry,
        )


class Retention:
    """Deletes what is old, each hour."""

    def __init__(
        self,
        state: Database,
        days: Mapping[Kept, float],
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        """Make the part.

        Args:
            state: The state half of the store.
            days: How long each is kept, 0 for ever.
            clock: Time.
            registry: Metrics.
        """
        self._state = state
        self._days = {what: kept for what, kept in days.items() if kept > 0}
        self._clock = clock
        self._meters = RetentionMeters(registry)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; the first pass comes at once."""
        self._task = asyncio.create_task(self._run(), name="retention")

    async def stop(self) -> None:
        """End after the step under way."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        await asyncio.sleep(FIRST_PASS_S)
        while True:
            try:
                with self._meters.seconds.time():
                    await self._pass()
                self._meters.done_at.set(self._clock.now())
            except (WriteFailed, SQLAlchemyError) as error:
                self._meters.failures.inc()
                _log.warning("retention_cut_short", reason=str(error))
            await asyncio.sleep(PASS_INTERVAL_S)

    async def _pass(self) -> None:
        for what, days in self._days.items():
            before, deleted, after = self._clock.now() - days * DAY_S, 0, 0
            while True:
                found = await asyncio.to_thread(self._find, what, before, after)
                if found.keys:
                    await self._delete(what, found)
                deleted, after = deleted + len(found.keys), found.after
                if found.is_last:
                    break
                await asyncio.sleep(PAUSE_S)
            if deleted:
                _log.info("old_rows_deleted", table=what.value, rows=deleted, older_than_days=days)

    def _find(self, what: Kept, before: float, after: int) -> Found:
        with self._state.read() as connection:
            return find_old(connection, what, before, after, ROWS_A_STEP)

    async def _delete(self, what: Kept, found: Found) -> None:
        write = self._state.writer.submit(
            lambda connection: delete_rows(connection, what, found.keys)
        )
        await asyncio.wrap_future(write)
        self._meters.deleted.labels(what.value).inc(len(found.keys))
