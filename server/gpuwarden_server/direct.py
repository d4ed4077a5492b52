"""uvicorn's protocol, which hands plain requests of one route over without ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
_CLOSE = b"connection: close\r\n"


class Door(Protocol):
    """Who takes whole requests of one path."""

    path: bytes

    def takes(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a POST with these headers may be one of its own; its body follows."""
        ...

    def offer(self, headers: Mapping[bytes, bytes], body: bytes, ticket: DirectRequest) -> bool:
        """Take a request; False where it must go on as an ASGI request: nothing was done."""
        ...


class _Unheard:
    """An event that nobody waits for: a real one has a queue of a kilobyte."""

    def set(self) -> None:
        """Nobody is woken."""


class DirectRequest:
    """A request whose answer is awaited; uvicorn sees in it a cycle that is not complete.

    Attributes:
        headers: By lower-case name.
        parts: The body as it came.
        response_complete: Whether it was answered, or became an ASGI request.
        disconnected: Whether the client has gone.
        keep_alive: Whether the connection stays open.
        message_event: uvicorn sets it when the connection is lost; nobody waits for it.
    """

    message_event = _Unheard()

    __slots__ = (
        "_protocol",
        "_scope",
        "disconnected",
        "headers",
        "keep_alive",
        "parts",
        "response_complete",
    )

    def __init__(
        self,
        protocol: DirectProtocol,
        headers: Mapping[bytes, bytes],
        *,
        keep_alive: bool,
    ) -> None:
        self._protocol = protocol
        self._scope: Any = protocol.scope
        self.headers = headers
        self.parts: list[bytes] = []
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = keep_alive

    @property
    def connection(self) -> tuple[str, int]:
        """Client address and port."""
        return self._protocol.client or ("", 0)

    def answer(self, body: bytes) -> None:
        """Answer 200 with JSON."""
        self.response_complete = True
        if not self.disconnected:
            self._protocol.answer(body, keep_alive=self.keep_alive)
        self._forget()

    def decline(self) -> None:
        """Let it go on as an ASGI request."""
        self.response_complete = True
        if not self.disconnected:
            self._protocol.go_on(self, self._scope)
        self._forget()

    def _forget(self) -> None:
        """Let go of what was asked: the connection keeps its latest request until the next comes.

        Ten thousand agents that rest between two batches need not have their last one lie here.
        """
        self._protocol.forget(self._scope)
        self.headers, self.parts, self._scope = {}, [], {}


class DirectProtocol(HttpToolsProtocol):
    """Keeps requests for the door until their body is whole; all else is uvicorn's."""

    door: Door | None = None
    _direct: DirectRequest | None = None

    def on_headers_complete(self) -> None:
        """Begin a request."""
        request = None if self.door is None else self._plain_request(self.door)
        if request is None:
            super().on_headers_complete()
            return
        self._direct = request
        self.cycle = cast("RequestResponseCycle", request)

    def _plain_request(self, door: Door) -> DirectRequest | None:
        if self.url != door.path or self.parser.get_method() != b"POST":
            return None
        before: RequestResponseCycle | None = self.cycle  # None before the first request
        if before is not None and not before.response_complete:
            return None  # pipelined: uvicorn keeps the order
        headers = dict(self.headers)
        plain = len(headers) == len(self.headers) and self.parser.get_http_version() == "1.1"
        if not plain or not door.takes(headers):
            return None
        return DirectRequest(self, headers, keep_alive=bool(self.parser.should_keep_alive()))

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._direct is not None:
            self._direct.parts.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The body is whole."""
        request, self._direct = self._direct, None
        if request is None:
            super().on_message_complete()
            return
        door = cast("Door", self.door)
        if not door.offer(request.headers, b"".join(request.parts), request):
            request.decline()

    def answer(self, body: bytes, *, keep_alive: bool) -> None:
        """Answer the request that is under way, with 200 and JSON."""
        lines = b"".join(b"%b: %b\r\n" % line for line in self.server_state.default_headers)
        self.transport.write(_OK % (len(body), lines if keep_alive else lines + _CLOSE, body))
        if not keep_alive:
            self.transport.close()
        self.on_response_complete()

    def forget(self, scope: Any) -> None:
        """Let go of a request's scope and headers, where the next one has not begun."""
        if self.scope is scope:
            self.scope = cast("Any", None)
            self.headers = []

    def go_on(self, request: DirectRequest, scope: Any) -> None:
        """Make an ASGI request of one that the door left."""
        path = cast("Door", self.door).path
        scope |= {
            "method": "POST",
            "path": self.root_path + path.decode("ascii"),
            "raw_path": self.root_path.encode("ascii") + path,
            "query_string": b"",
        }
        cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=request.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body += b"".join(request.parts)
        cycle.more_body = False
        cycle.message_event.set()
        if cast("DirectRequest", self.cycle) is request:
            self.cycle = cycle
        self._start_asgi_task(cycle, self.app)
