"""GET of a stream as a bare ASGI endpoint.

A framework response costs 28 to 50 KiB and about 1 ms a reader; this form costs about 10 KiB and
0.3 ms, and sends the same bytes object to all.
"""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs

from gpuwarden_server.access.authorisation import authorise
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.access.scopes import PoolOf
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.front import (
    ABORT,
    HEAD_ONLY,
    RawRoute,
    Receive,
    Scope,
    Send,
    header_of,
)
from gpuwarden_server.streams.hub import StreamHub
from gpuwarden_server.streams.reader import Reader, Wants

MOST_NAMES = 1000
"""Nodes and pools that a reader may name."""
ABORT_S = 1.0
"""How long a dropped connection may take to be gone; it takes one turn of the event loop."""
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx: do not hold the stream back
]


class StreamHandler:
    """The raw handler of a stream."""

    def __init__(
        self, route: RawRoute, hub: StreamHub, ring: KeyRing, pool_of: PoolOf | None = None
    ) -> None:
        """Make a handler.

        Args:
            route: Its route.
            hub: The stream.
            ring: The keys.
            pool_of: Name of a node's pool, where readers may narrow the stream by `?node=` and
                `?pool=`, and narrowed keys hear of their nodes only; None for a stream that is one
                whole, the same for all.
        """
        self._route = (route.method, route.path)
        self._hub = hub
        self._ring = ring
        self._pool_of = pool_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one reader until it leaves, is evicted, or the server stops.

        Raises:
            ProblemError: 401, 403 or 422, before the answer begins.
        """
        principal = authorise(self._ring, self._route, header_of(scope, b"authorization"))
        wants = self._wants(principal, scope)
        if scope.get(HEAD_ONLY):
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await receive()  # the request itself; what comes next is the disconnect
        reader = self._hub.join(header_of(scope, b"last-event-id") or "", wants)
        gone = asyncio.ensure_future(receive())
        gone.add_done_callback(lambda _: reader.close())
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _serve(reader, send)
        except asyncio.CancelledError:
            if not reader.evicted:
                raise
            # Sending would block again, and so would a polite end: what was sent and not read
            # would wait in the server for as long as the peer holds the connection.
            abort = scope.get(ABORT)
            if abort is not None:
                abort()
                await asyncio.wait({gone}, timeout=ABORT_S)
        finally:
            self._hub.leave(reader)
            gone.cancel()

    def _wants(self, principal: Principal | None, scope: Scope) -> Wants | None:
        """Which nodes a reader is told of; None for all."""
        pool_of = self._pool_of
        if pool_of is None:
            return None
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        nodes, pools = frozenset(asked.get("node", ())), frozenset(asked.get("pool", ()))
        if len(nodes) + len(pools) > MOST_NAMES:
            raise ProblemError(
                422, "invalid_value", f"more than {MOST_NAMES} nodes and pools", "Ask for all."
            )
        narrowed = principal is not None and principal.scope.names_nodes
        if not (nodes or pools or narrowed):
            return None

        def wants(node_id: str) -> bool:
            if narrowed and principal is not None and not principal.covers(node_id):
                return False
            return not (nodes or pools) or node_id in nodes or pool_of(node_id) in pools

        return wants


async def _serve(reader: Reader, send: Send) -> None:
    while chunk := await reader.take():
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
