"""The REST routes as a typed, blocking client; `async_client.py` has the same to await."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


class Client(Routes):
    """A connection to one gpuwarden server; safe to use from several threads.

    What may succeed later by itself (no answer, 429, 503) is tried again with growing waits; a
    write keeps its idempotency key over all attempts, so that it is carried out once.

    Args:
        settings: Address, key and certificates.
        transport: Stands in for the network (in-process applications); None for real HTTP.
        retry: How often a call is tried; `exchange.ONCE` for who has a loop of their own.
        timeout_s: Longest wait for each step of one attempt.

    Raises:
        SettingError: The certificate file cannot be used.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        transport: httpx.BaseTransport | None = None,
        *,
        retry: Retry | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self.url = settings.url
        self._retry = retry or Retry()
        self._http = httpx.Client(transport=transport, **http_options(settings, timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call[Answer], retry: Retry | None = None) -> Answer:
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
                return self._attempt(exchange)
            except GpuwardenError as error:
                time.sleep(exchange.fail(error))

    def walk(self, make: Callable[..., Call[Page[Item]]]) -> Iterator[Item]:
        """Every item of a list.

        Args:
            make: Makes the call of a page; the next one is asked for with `cursor`.
        """
        page = self.send(make())
        yield from page.items
        while page.next_cursor is not None:
            page = self.send(make(cursor=page.next_cursor))
            yield from page.items

    @contextmanager
    def exclusion_stream(self, last_event_id: str | None) -> Iterator[EventSource]:
        """The exclusion feed as server-sent events; `watch.ExclusionWatch` follows it.

        Args:
            last_event_id: "FEED_ID:EPOCH" to be sent what was missed since; None for the present
                position only.

        Raises:
            ServerUnreachable: No answer, or the connection broke; also while iterating.
            Refused: The server said no.
            UnexpectedAnswer: Not an event stream.
        """
        with self.event_stream("/v1/exclusions/stream", {}, last_event_id) as source:
            yield source

    @contextmanager
    def event_stream(
        self, path: str, query: Mapping[str, object], last_event_id: str | None
    ) -> Iterator[EventSource]:
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
            response = self._http.send(request, stream=True)
            try:
                if not is_stream(response):
                    response.read()
                check_stream(response)
                yield EventSource(response)
            finally:
                response.close()
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error

    def follow(self, stream: MoveStream[Item]) -> Iterator[Told[Item]]:
        """What a stream tells, until who asks stops; over lost connections, nothing missed.

        Raises:
            Refused: The server said no, and would again.
            UnexpectedAnswer: Not a stream of ours.
        """
        while True:
            try:
                yield from self._follow_once(stream)
            except GpuwardenError as error:
                time.sleep(stream.note_failure(error))

    def _follow_once(self, stream: MoveStream[Item]) -> Iterator[Told[Item]]:
        with self.event_stream(stream.path, stream.query, stream.event_id) as source:
            stream.note_contact()
            for event in source.iter_sse():
                told = stream.take(event.event, event.data, event.id)
                if told is not None:
                    yield told
        raise ServerUnreachable(f"{self.url} ended the stream")

    def _attempt(self, exchange: Exchange[Answer]) -> Answer:
        try:
            response = self._http.send(exchange.request(self._http))
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from error
        return exchange.answer(response)
