"""The streams of stored facts as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gpuwarden_server.store.database import Database
from gpuwarden_server.streams.hub import StreamHub
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.streams.tail import RowSource, TableTail


class FactStreams:
    """A hub and a tail for each table of facts.

    Attributes:
        hubs: By name.
    """

    def __init__(
        self,
        sources: Mapping[str, RowSource],
        state: Database,
        meters: StreamMeters,
        feed_id: Callable[[], str],
        stopping: asyncio.Event,
    ) -> None:
        """Make the streams.

        Args:
            sources: Tables by the stream's name.
            state: The database.
            meters: Figures of all streams.
            feed_id: Random id of the database; asked at the start.
            stopping: Set when the shutdown begins: streams end then.
        """
        self._feed_id = feed_id
        self._stopping = stopping
        self.hubs = {name: StreamHub(name, meters) for name in sources}
        self._tails = [
            TableTail(name, state, source, self.hubs[name]) for name, source in sources.items()
        ]
        self._closer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read back what readers may still ask for, and follow."""
        for tail in self._tails:
            await tail.start(self._feed_id())
        self._closer = asyncio.create_task(self._close_in_time(), name="stream-closer")

    async def stop(self) -> None:
        """End."""
        if self._closer is not None:
            self._closer.cancel()
        for tail in self._tails:
            await tail.stop()

    def wake(self) -> None:
        """Facts were committed; callable from any thread."""
        for tail in self._tails:
            tail.wake()

    async def _close_in_time(self) -> None:
        # The shutdown waits for open requests before it stops the parts: streams must end first.
        await self._stopping.wait()
        for tail in self._tails:
            tail.close_readers()
