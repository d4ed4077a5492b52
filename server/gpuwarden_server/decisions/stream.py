"""GET /v1/exclusions/stream as a bare ASGI endpoint.

A framework response costs 28 to 50 KiB and about 1 ms a reader; this form costs about 10 KiB and
0.3 ms, and sends the same bytes object to all.
"""

from __future__ import annotations

import asyncio

from gpuwarden_server.access.authorisation import authorise
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.decisions.hub import FeedHub, Reader
from gpuwarden_server.front import EXCLUSION_STREAM, HEAD_ONLY, Receive, Scope, Send, header_of

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx: do not hold the stream back
]


class ExclusionStream:
    """The raw handler of the stream."""

    def __init__(self, hub: FeedHub, ring: KeyRing) -> None:
        self._hub = hub
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one reader until it leaves, is evicted, or the server stops.

        Raises:
            ProblemError: 401 or 403, before the answer begins.
        """
        route = (EXCLUSION_STREAM.method, EXCLUSION_STREAM.path)
        authorise(self._ring, route, header_of(scope, b"authorization"))
        if scope.get(HEAD_ONLY):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await receive()  # the request itself; what comes next is the disconnect
        reader = self._hub.join(header_of(scope, b"last-event-id") or "")
        gone = asyncio.ensure_future(receive())
        gone.add_done_callback(lambda _: reader.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _serve(reader, send)
        except asyncio.CancelledError:
            if not reader.closed:
                raise
            # Evicted: sending would block again, so the response is left without its end and the
            # server drops the connection.
        finally:
            self._hub.leave(reader)
            gone.cancel()


async def _serve(reader: Reader, send: Send) -> None:
    while chunk := await reader.take():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
