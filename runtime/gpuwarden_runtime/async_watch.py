"""Follows the exclusion feed in a task; `watch.py` does in a thread."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from httpx_sse import EventSource

from gpuwarden_runtime import calls
from gpuwarden_runtime.async_client import AsyncClient
from gpuwarden_runtime.cache import SetCache
from gpuwarden_runtime.errors import GpuwardenError, ServerUnreachable
from gpuwarden_runtime.exchange import ONCE
from gpuwarden_runtime.feed import FeedState, Floor
from gpuwarden_runtime.following import Follower, Listener, Say


class AsyncExclusionWatch:
    """Keeps one exclusion set up to date in a task, between `async with` and its end.

    Args:
        client: Connection to the server.
        on_change: Called in the event loop with every new set, the first included.
        say: Called with one sentence when the connection is lost, comes back, or a set is refused.
        cache: Where the last set is kept, None for nowhere.
        floor: What a resync may not take from us.
        held: What is already known.
    """

    def __init__(
        self,
        client: AsyncClient,
        on_change: Listener,
        say: Say,
        cache: SetCache | None = None,
        floor: Floor | None = None,
        held: FeedState | None = None,
    ) -> None:
        self._client = client
        self._follower = Follower(on_change, say, cache, floor, held)
        self._task: asyncio.Task[None] | None = None

    @property
    def state(self) -> FeedState | None:
        """The set held now, None before the first."""
        return self._follower.state

    async def __aenter__(self) -> Self:
        """Begin to follow."""
        self._task = asyncio.create_task(self._follow(), name="exclusions")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End following."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_once()
            except GpuwardenError as trouble:
                await asyncio.sleep(self._follower.note_failure(trouble))

    async def _follow_once(self) -> None:
        """Follow until the connection ends.

        Raises:
            GpuwardenError: It did not come about, or ended.
        """
        if self._follower.state is None:
            await self._fetch()
        async with self._client.exclusion_stream(self._follower.event_id) as source:
            self._follower.note_contact()
            try:
                await self._take_all(source)
            finally:
                self._follower.keep()  # confirmed until the connection ended

    async def _take_all(self, source: EventSource) -> None:
        async for event in source.aiter_sse():
            if self._follower.take_event(event.event, event.data):
                await self._fetch()
        raise ServerUnreachable(f"{self._client.url} ended the feed")

    async def _fetch(self) -> None:
        # Once: the watch tries again by itself.
        self._follower.take_set(await self._client.send(calls.exclusions(), ONCE))
