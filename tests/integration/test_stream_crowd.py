"""Very many readers of the exclusions at once, ten of which do not read."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from gpuwarden_server.access.credentials import hash_key, new_key
from gpuwarden_server.access.domain import KeyRecord
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.repository import StoredKey
from gpuwarden_server.core.clock import SystemClock
from gpuwarden_server.front import EXCLUSION_STREAM, Front
from gpuwarden_server.serving import bind_socket, make_server, url_of
from gpuwarden_server.store.database import connect_store
from gpuwarden_server.streams.frames import Frame, Standing, event_frame
from gpuwarden_server.streams.handler import StreamHandler
from gpuwarden_server.streams.hub import StreamHub
from gpuwarden_server.streams.meters import StreamMeters
from tests.builders.crowd import gather_crowd, percentile
from tests.builders.feed import quick_settings, xid_event
from tests.builders.server import Feeder, ServerProcess, make_gpu, make_settings
from tests.fakes.waiting import wait_for

EXCLUSIONS = "/v1/exclusions/stream"
STALLED = 10
SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(8)]


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.serial
@pytest.mark.parametrize("readers", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_an_exclusion_reaches_every_reader_past_those_that_stall(
    tmp_path: Path, readers: int, record_property: Callable[[str, object], None]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < readers + 500:
        pytest.skip(f"{readers} readers need {readers + 500} open files; the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, readers + 500), hard))
    process = ServerProcess(quick_settings(tmp_path))
    try:
        server = process.start()
        node = Feeder(server, server.mint("agent", "node-c"), "node-c")
        node.introduce([make_gpu(number, "node-c") for number in range(8)])

        async def story() -> list[float]:
            key = server.mint("runtime")
            before = resident_bytes(process.pid)
            crowd = await gather_crowd(server.url, EXCLUSIONS, key, readers, STALLED)
            per_reader = (resident_bytes(process.pid) - before) / (readers + STALLED)
            waits: list[float] = []
            for number in range(3):
                heard = asyncio.create_task(crowd.all_heard(b'"count":%d' % (number + 1)))
                await asyncio.to_thread(node.events, xid_event(79, SLOTS[number]))
                arrivals = await asyncio.wait_for(heard, 60.0)
                assert len(arrivals) == readers
                waits += [at - min(arrivals) for at in arrivals]
            p50, p99 = (percentile(waits, share) * 1000 for share in (0.5, 0.99))
            record_property(
                "figure",
                f"{readers} readers of the exclusions, {STALLED} stalled: {per_reader / 1024:.1f} "
                f"KiB a reader; behind the first of them p50 {p50:.0f} ms, p99 {p99:.0f} ms",
            )
            began = time.monotonic()
            assert await asyncio.to_thread(process.terminate) == 0
            assert time.monotonic() - began < 10.0, "open streams must not hold the shutdown"
            await crowd.close()
            return waits

        assert len(asyncio.run(story())) == 3 * readers
        node.close()
        server.admin.close()
    finally:
        process.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FEED = "f" * 32
FRAME_BYTES = 256 * 1024
FRAMES = 48
"""12 MiB: more than kernel, transport and buffer hold for one reader."""


class Pipe:
    """A server of one stream, whose frames are as large as a test likes."""

    def __init__(self, folder: Path) -> None:
        self.settings = make_settings(folder)
        self.registry = CollectorRegistry()
        self.hub = StreamHub("exclusions", StreamMeters(self.registry))
        self.key = new_key()
        self.position = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address."""
        listener = bind_socket(self.settings)
        server = make_server(self._app(), self.settings, self.hub.close)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            wait_for(lambda: server.started, what="the server started")
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join(20.0)
            listener.close()
        assert not thread.is_alive()

    def publish(self) -> None:
        """One more frame."""
        self.position += 1
        tag = f"{FEED}:{self.position}"
        body = event_frame(tag, "change", b'"%b"' % (b"x" * FRAME_BYTES))
        self.hub.publish([Frame(self.position, body)], self._standing())

    def evicted(self) -> float | None:
        """Readers dropped so far."""
        return self.registry.get_sample_value(
            "gpuwarden_feed_readers_evicted_total", {"stream": "exclusions"}
        )

    def _standing(self) -> Standing:
        tag = f"{FEED}:{self.position}"
        return Standing(FEED, self.position, event_frame(tag, "state", b"{}"))

    def _app(self) -> FastAPI:
        ring = KeyRing(connect_store(self.settings.state_folder).state, SystemClock())
        record = KeyRecord("key-1", Role.READER, None, "crowd", 0.0, "test")
        ring.admit(StoredKey(hash_key(self.key), None, record))

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            self.hub.start(self._standing(), ())
            yield

        app = FastAPI(lifespan=lifespan)
        handler = StreamHandler(EXCLUSION_STREAM, self.hub, ring)
        app.add_middleware(Front, handlers={EXCLUSION_STREAM: handler})
        return app


def newest_id(sent: bytes) -> bytes:
    return bytes(re.findall(rb"^id: (\S+)\r?\n", sent, re.MULTILINE)[-1])


@pytest.mark.serial
def test_a_reader_that_stalls_is_dropped_for_good_and_may_come_back(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)

    async def story(url: str) -> None:
        crowd = await gather_crowd(url, EXCLUSIONS, pipe.key, 3, stalled=1)
        for number in range(FRAMES):
            pipe.publish()
            word = b"id: %b:%d\n" % (FEED.encode(), number + 1)
            await asyncio.wait_for(crowd.all_heard(word), 20.0)
        await asyncio.to_thread(wait_for, lambda: pipe.evicted() == 1, 20.0, "the eviction")
        assert pipe.hub.reader_count == 3
        (stalled,) = crowd.stalled
        sent = await asyncio.to_thread(read_to_the_end, stalled)
        last = newest_id(sent)
        assert int(last.rpartition(b":")[2]) < FRAMES
        back = await gather_crowd(url, EXCLUSIONS, pipe.key, 1, 0, last_event_id=last.decode())
        word = b"id: %b:%d\n" % (FEED.encode(), FRAMES)
        await asyncio.wait_for(back.all_heard(word), 20.0)
        await back.close()
        await crowd.close()

    with pipe.running() as url:
        asyncio.run(story(url))


def read_to_the_end(connection: socket.socket) -> bytes:
    """All that the kernel still holds, up to the end that the server made."""
    connection.settimeout(20.0)
    parts: list[bytes] = []
    try:
        while part := connection.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
