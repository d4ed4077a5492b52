"""Follows a table that only grows, and hands its new rows to a hub."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.store.database import Database
from gpuwarden_server.streams.frames import Frame, Standing, event_frame
from gpuwarden_server.streams.hub import REPLAY_FRAMES, StreamHub

POLL_S = 1.0
"""How often it looks without being woken: another process may write too."""
ROWS_A_READ = 1000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """A stored fact.

    Attributes:
        row: Its number, rising.
        node_id: What it is about.
        form: Its JSON form.
    """

    row: int
    node_id: str
    form: dict[str, Any]


class RowSource(Protocol):
    """A table that only grows.

    Attributes:
        event: Name of its events.
    """

    event: str

    def newest(self, connection: Connection) -> int:
        """Number of the newest row, 0 where there is none."""
        ...

    def after(self, connection: Connection, row: int, limit: int) -> list[Row]:
        """Rows after one, oldest first."""
        ...


class TableTail:
    """Reads what is new whenever it is woken, and hands it on; one query path for now and then."""

    def __init__(self, name: str, state: Database, source: RowSource, hub: StreamHub) -> None:
        """Make a tail; `start` makes it follow.

        Args:
            name: Of the stream, for the log.
            state: The database.
            source: The table.
            hub: Who is told.
        """
        self._name = name
        self._state = state
        self._source = source
        self._hub = hub
        self._feed_id = ""
        self._position = 0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, feed_id: str) -> None:
        """Read back what readers may still ask for, and follow."""
        self._feed_id = feed_id
        self._loop = asyncio.get_running_loop()
        frames = await asyncio.to_thread(self._recall)
        self._hub.start(self._standing(), frames)
        self._task = asyncio.create_task(self._follow(), name=f"stream-{self._name}")

    async def stop(self) -> None:
        """End, and end every reader."""
        self._hub.close()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def close_readers(self) -> None:
        """End every reader; the server is about to stop."""
        self._hub.close()

    def wake(self) -> None:
        """Rows were committed; callable from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake.set)

    async def _follow(self) -> None:
        failing = False
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL_S)
            self._wake.clear()
            try:
                await self._hand_on()
            except SQLAlchemyError as error:
                if not failing:
                    _log.error("stream_held_up", stream=self._name, reason=type(error).__name__)
                failing = True
            else:
                if failing:
                    _log.info("stream_goes_on", stream=self._name)
                failing = False

    async def _hand_on(self) -> None:
        while frames := await asyncio.to_thread(self._read, self._position, ROWS_A_READ):
            self._position = frames[-1].position
            self._hub.publish(frames, self._standing())

    def _recall(self) -> list[Frame]:
        with self._state.read() as connection:
            self._position = self._source.newest(connection)
        return self._read(self._position - REPLAY_FRAMES, REPLAY_FRAMES)

    def _read(self, after: int, limit: int) -> list[Frame]:
        with self._state.read() as connection:
            rows = self._source.after(connection, max(0, after), limit)
        return [self._frame(row) for row in rows]

    def _frame(self, row: Row) -> Frame:
        body = msgspec.json.encode({"row": row.row} | row.form)
        frame = event_frame(f"{self._feed_id}:{row.row}", self._source.event, body)
        return Frame(row.row, frame, row.node_id)

    def _standing(self) -> Standing:
        body = msgspec.json.encode({"feed_id": self._feed_id, "row": self._position})
        frame = event_frame(f"{self._feed_id}:{self._position}", "position", body)
        return Standing(self._feed_id, self._position, frame)
