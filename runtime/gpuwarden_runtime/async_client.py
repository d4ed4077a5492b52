"""The REST routes as a typed client to await; the same methods as `client.Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Self, TypeVar

import httpx
from httpx_sse import EventSource

from gpuwarden_runtime.call import Call
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import GpuwardenError, ServerUnreachable
from gpuwarden_runtime.exchange import (
    Exchange,
    Retry,
    check_stream,
    http_options,
    is_stream,
    stream_request,
    unreachable,
)
from gpuwarden_runtime.moves import MoveStream, Told
from gpuwarden_runtime.records import Page
from gpuwarden_runtime.routes import Routes

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class AsyncClient(Routes):
    """A connection to one gpuwarden server, for one event loop.

    Every method of `Client`, to await; `all_...` to go through with `async for`. Tried again is
    what `Client` tries again.

    Args:
        settings: Address, key and certificates.
        transport: Stands in for the network (in-process applications); None for real HTTP.
        retry: How often a call is tried.
        timeout_s: Longest wait for each step of one attempt.

    Raises:
        SettingError: The certificate file cannot be used.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        retry: Retry | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.url = settings.url
        self._retry = retry or Retry()
        self._http = httpx.AsyncClient(transport=transport, **http_options(settings, timeout_s))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, call: Call[Answer], retry: Retry | None = None) -> Answer:
        """Send a call, as often as it takes and is allowed.

        Args:
            call: What to ask.
            retry: How often; None as the client was made.

        Raises:
            ServerUnreachable: No answer.
            Refused: The server said no.
            UnexpectedAnswer: An answer that is not of our API.
        """
        exchange = Exchange(call, retry or self._retry, self.url)
        while True:
            try:
                return await self._attempt(exchange)
            except GpuwardenError as error:
                await asyncio.sleep(exchange.fail(error))

    async def walk(self, make: Callable[..., Call[Page[Item]]]) -> AsyncIterator[Item]:
        """Every item of a list.

        Args:
            make: Makes the call of a page; the next one is asked for with `cursor`.
        """
        page = await self.send(make())
        for item in page.items:
            yield item
        while page.next_cursor is not None:
            page = await self.send(make(cursor=page.next_cursor))
            for item in page.items:
                yield item

    @asynccontextmanager
    async def exclusion_stream(self, last_event_id: str | None) -> AsyncIterator[EventSource]:
        """The exclusion feed as server-sent events; `async_watch.AsyncExclusionWatch` follows it.

        Args:
            last_event_id: "FEED_ID:EPOCH" to be sent what was missed since; None for the present
                position only.

        Raises:
            ServerUnreachable: No answer, or the connection broke; also while iterating.
            Refused: The server said no.
            UnexpectedAnswer: Not an event stream.
        """
        async with self.event_stream("/v1/exclusions/stream", {}, last_event_id) as source:
            yield source

    @asynccontextmanager
    async def event_stream(
        self, path: str, query: Mapping[str, object], last_event_id: str | None
    ) -> AsyncIterator[EventSource]:
        """Any stream of the server as server-sent events.

        Args:
            path: Route.
            query: What narrows it.
            last_event_id: Of what was heard last, None for nothing.

        Raises:
            ServerUnreachable: No answer, or the connection broke; also while iterating.
            Refused: The server said no.
            UnexpectedAnswer: Not an event stream.
        """
        request = stream_request(self._http, self.url, path, query, last_event_id)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if not is_stream(response):
                    await response.aread()
                check_stream(response)
                yield EventSource(response)
            finally:
                await response.aclose()
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error

    async def follow(self, stream: MoveStream[Item]) -> AsyncIterator[Told[Item]]:
        """What a stream tells, until who asks stops; over lost connections, nothing missed.

        Raises:
            Refused: The server said no, and would again.
            UnexpectedAnswer: Not a stream of ours.
        """
        while True:
            async with aclosing(self._follow_once(stream)) as found:
                async for told in found:
                    yield told

    async def _follow_once(self, stream: MoveStream[Item]) -> AsyncGenerator[Told[Item]]:
        try:
            async with self.event_stream(stream.path, stream.query, stream.event_id) as source:
                stream.note_contact()
                async for told in _told(stream, source):
                    yield told
            raise ServerUnreachable(f"{self.url} ended the stream")
        except GpuwardenError as error:
            await asyncio.sleep(stream.note_failure(error))

    async def _attempt(self, exchange: Exchange[Answer]) -> Answer:
        try:
            response = await self._http.send(exchange.request(self._http))
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        return exchange.answer(response)


async def _told(stream: MoveStream[Item], source: EventSource) -> AsyncIterator[Told[Item]]:
    async for event in source.aiter_sse():
        told = stream.take(event.event, event.data, event.id)
        if told is not None:
            yield told
