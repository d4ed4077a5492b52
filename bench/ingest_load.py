"""Load generator of bench/ingest.py, a process of its own: raw HTTP over uvloop, keep-alive.

Started with a plan as JSON; it works through the phases that come on stdin, one JSON line each,
and answers each with one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import uvloop
import zstandard

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.ingest_fleet import FIRST_SEQ, Template, key_of_node
from gpuwarden_wire.batches import CONTENT_TYPE

TICK_S = 0.002
OPENED_AT_ONCE = 64
DRAIN_S = 30.0


class Node(asyncio.Protocol):
    """One agent's connection: a request at a time, answered or lost."""

    def __init__(self, load: Load, number: int) -> None:
        self.load = load
        self.number = number
        self.seq = FIRST_SEQ
        self.body = load.template.body_of(number)
        self.sent_at = 0.0
        self.waiting = False
        self.transport: asyncio.Transport | None = None
        self._answer = b""
        self._event: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by the server: whatever waits is lost."""
        self.transport = None
        self.load.lost += 1
        if self._event is not None and not self._event.done():
            self._event.set_exception(ConnectionResetError("the server closed the connection"))

    def send_next(self) -> None:
        """Send the next batch of telemetry."""
        if self.transport is None:
            return
        self.seq += 1
        self.load.template.patch(self.body, self.number, self.seq, time.time())
        self.sent_at, self.waiting = time.perf_counter(), True
        self.load.sent += 1
        self._write(self.body)

    async def ask(self, body: bytes) -> bytes:
        """Send a body and wait for the answer's."""
        self._event = asyncio.get_running_loop().create_future()
        self._write(bytearray(body))
        try:
            return await asyncio.wait_for(self._event, 60)
        finally:
            self._event = None

    def _write(self, body: bytearray) -> None:
        assert self.transport is not None
        encoded = self.load.encoded(body)
        head = self.load.head_of(self.number, len(encoded))
        self.transport.write(head + encoded)

    def data_received(self, data: bytes) -> None:
        """Take an answer, whole or in parts."""
        self._answer = self._answer + data if self._answer else data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < size:
            return
        self._answer = b""
        if self._event is not None:
            if head[9:12] == b"200":
                self._event.set_result(body)
            else:
                self._event.set_exception(RuntimeError(f"{head!r} {body!r}"))
            return
        self.waiting = False
        took = time.perf_counter() - self.sent_at
        self.load.answered(self, took, head[9:12] == b"200" and self._names_seq(body), body)

    def _names_seq(self, body: bytes) -> bool:
        return self.load.bare or b'"applied_seq":%d,' % self.seq in body


class Load:
    """A fleet against one address."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.template = Template(plan["interval_s"], plan["series"])
        self.bare: bool = plan["bare"]
        self._host, self._port = plan["host"], plan["port"]
        self._zstd = zstandard.ZstdCompressor(level=1) if plan["encoding"] == "zstd" else None
        encoding = "Content-Encoding: zstd\r\n" if self._zstd else ""
        self._head = (
            f"POST /v1/ingest HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"{encoding}Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
        ).encode()
        self.nodes = [Node(self, number) for number in range(plan["nodes"])]
        self.sent = self.acked = self.refused = self.lost = self.skipped = 0
        self.refusal = ""
        self._took: list[float] = []
        self._closed_until = 0.0
        self._queue: Iterator[Node] = iter(())

    def encoded(self, body: bytearray) -> bytes | bytearray:
        """As it goes over the wire."""
        return self._zstd.compress(bytes(body)) if self._zstd else body

    def head_of(self, number: int, size: int) -> bytes:
        """The request's head."""
        return self._head % (key_of_node(number).encode(), size)

    def answered(self, node: Node, took: float, good: bool, body: bytes) -> None:
        """Count an answer; in a closed loop the next node sends."""
        self._took.append(took)
        if good:
            self.acked += 1
        else:
            self.refused += 1
            self.refusal = self.refusal or body.decode(errors="replace")
        if self._closed_until and time.perf_counter() < self._closed_until:
            next(self._queue).send_next()

    async def connect(self) -> None:
        """Open all connections, and introduce the nodes."""
        gate = asyncio.Semaphore(OPENED_AT_ONCE)
        if not self.bare:
            await self._introduce(gate, self.nodes[0], first=True)
        await asyncio.gather(*(self._introduce(gate, n, first=False) for n in self.nodes))

    async def _introduce(self, gate: asyncio.Semaphore, node: Node, *, first: bool) -> None:
        loop = asyncio.get_running_loop()
        async with gate:
            if node.transport is None:
                await loop.create_connection(lambda: node, self._host, self._port)
            if self.bare or (node.number == 0 and not first):
                return
            now = time.time()
            await node.ask(self.template.introduction(node.number, now))
            await node.ask(self.template.schemas(node.number, now))

    async def paced(self, interval_s: float, seconds: float) -> None:
        """Each node sends each `interval_s`, spread evenly; one that still waits is skipped."""
        count, began, done = len(self.nodes), time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds:
            due = int(passed / interval_s * count)
            while done < due:
                node = self.nodes[done % count]
                done += 1
                if node.waiting or node.transport is None:
                    self.skipped += 1
                else:
                    node.send_next()
            await asyncio.sleep(TICK_S)
        await self._drain()

    async def closed(self, connections: int, seconds: float) -> None:
        """`connections` batches are always on their way, of all nodes in turn."""
        self._queue = self._in_turn()
        self._closed_until = time.perf_counter() + seconds
        for _ in range(min(connections, len(self.nodes) // 2 or 1)):
            next(self._queue).send_next()
        await asyncio.sleep(seconds)
        self._closed_until = 0.0
        await self._drain()

    def _in_turn(self) -> Iterator[Node]:
        while True:
            for node in self.nodes:
                if not node.waiting and node.transport is not None:
                    yield node

    async def _drain(self) -> None:
        until = time.perf_counter() + DRAIN_S
        while any(n.waiting for n in self.nodes) and time.perf_counter() < until:
            await asyncio.sleep(0.01)

    def report(self) -> dict[str, Any]:
        """What happened since the last report."""
        took = np.array(self._took or [0.0]) * 1e3
        found = {
            "sent": self.sent,
            "acked": self.acked,
            "refused": self.refused,
            "lost": self.lost,
            "skipped": self.skipped,
            "p50_ms": float(np.percentile(took, 50)),
            "p99_ms": float(np.percentile(took, 99)),
            "max_ms": float(took.max()),
            "refusal": self.refusal,
        }
        self.sent = self.acked = self.refused = self.lost = self.skipped = 0
        self._took.clear()
        return found


async def work(plan: dict[str, Any]) -> None:
    """Do what stdin says."""
    load = Load(plan)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        phase = json.loads(line)
        match phase["do"]:
            case "connect":
                await load.connect()
            case "paced":
                await load.paced(phase["interval_s"], phase["seconds"])
            case "closed":
                await load.closed(phase["connections"], phase["seconds"])
        print(json.dumps(load.report()), flush=True)


if __name__ == "__main__":
    uvloop.run(work(json.loads(sys.argv[1])))
