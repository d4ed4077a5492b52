"""The two servers that bench/sse.py compares: ours, and one on sse-starlette.

`python bench/sse_servers.py ours|sse-starlette` prints its URL and publishes one event for each
line on standard input; the event's JSON holds the monotonic time at which it was published.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwarden_server.access.credentials import hash_key
from gpuwarden_server.access.domain import KeyRecord
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.repository import StoredKey
from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import SystemClock
from gpuwarden_server.front import EXCLUSION_STREAM, Front
from gpuwarden_server.serving import bind_socket, make_server, url_of
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.streams.frames import Frame, Standing, event_frame
from gpuwarden_server.streams.handler import StreamHandler
from gpuwarden_server.streams.hub import StreamHub
from gpuwarden_server.streams.meters import StreamMeters

KEY = "gw_" + "b" * 43
FEED = "f" * 32
OURS, THEIRS = "ours", "sse-starlette"
_FILLER = "x" * 400
"""An exclusion has about 500 bytes."""


def event_json(number: int) -> str:
    """The event: its number, when it is published, and as many bytes as an exclusion has."""
    return json.dumps({"n": number, "at": time.monotonic(), "added": _FILLER})


def ours(folder: Path) -> tuple[FastAPI, Callable[[int], None]]:
    """The stream as the server has it, authentication included; and what publishes."""
    hub = StreamHub("exclusions", StreamMeters(CollectorRegistry()), heartbeat_s=60.0)
    ring = KeyRing(connect_store(folder).state, SystemClock())
    record = KeyRecord("key-1", Role.READER, None, "bench", 0.0, "bench")
    ring.admit(StoredKey(hash_key(KEY), None, record))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        hub.start(Standing(FEED, 0, event_frame(f"{FEED}:0", "state", b"{}")), ())
        yield

    def publish(number: int) -> None:
        tag = f"{FEED}:{number}"
        body = event_frame(tag, "exclusions", event_json(number).encode())
        standing = Standing(FEED, number, event_frame(tag, "state", b"{}"))
        hub.publish([Frame(number, body)], standing)

    app = FastAPI(lifespan=lifespan)
    handler = StreamHandler(EXCLUSION_STREAM, hub, ring)
    app.add_middleware(Front, handlers={EXCLUSION_STREAM: handler})
    return app, publish


def theirs() -> tuple[FastAPI, Callable[[int], None]]:
    """The same with sse-starlette: a queue for each reader, as its documentation shows."""
    from sse_starlette.sse import EventSourceResponse

    queues: set[asyncio.Queue[dict[str, Any]]] = set()
    loops: list[asyncio.AbstractEventLoop] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        yield

    def spread(event: dict[str, Any]) -> None:
        for queue in queues:
            queue.put_nowait(event)

    def publish(number: int) -> None:
        event = {
            "id": f"{FEED}:{number}",
            "event": "exclusions",
            "data": event_json(number),
        }
        loops[0].call_soon_threadsafe(spread, event)

    app = FastAPI(lifespan=lifespan)

    @app.get(EXCLUSION_STREAM.path)
    async def follow(request: Request) -> EventSourceResponse:
        async def events() -> AsyncIterator[dict[str, Any]]:
            queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
            queues.add(queue)
            try:
                yield {"event": "state", "data": "{}"}
                while True:
                    yield await queue.get()
            finally:
                queues.discard(queue)

        return EventSourceResponse(events(), ping=60)

    return app, publish


def main(arguments: list[str]) -> int:
    """Serve until standard input ends."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_folder=Path(folder), shutdown_grace_s=1)
        app, publish = ours(Path(folder)) if arguments == [OURS] else theirs()
        listener = bind_socket(settings)
        server = make_server(app, settings, lambda: None)
        thread = threading.Thread(target=_take_orders, args=(server, url_of(listener), publish))
        thread.start()
        server.run(sockets=[listener])
    return 0


def _take_orders(server: uvicorn.Server, url: str, publish: Callable[[int], None]) -> None:
    while not server.started:
        time.sleep(0.01)
    print(url, flush=True)
    for number, _ in enumerate(sys.stdin, 1):
        publish(number)
    server.should_exit = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
