"""What bench/ingest.py measures beside the server: a bare HTTP server, and VictoriaMetrics.

Run as a program it is the bare server: uvloop, httptools, decoding and a ring in memory, nothing
else. It is what Python can do at most.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import cramjam
import httptools
import numpy as np
import numpy.typing as npt
import uvloop
import zstandard

from gpuwarden_wire.codec import decode_batch

RING = 8
VM = "victoria-metrics"
VM_ROUNDS = 8
_ACK = b'{"stream":"telemetry","applied_seq":1000,"durable_seq":1000,"feed_id":"feed-0","epoch":1}'
_OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_ACK)


class Bare(asyncio.Protocol):
    """One connection."""

    ring: ClassVar[dict[tuple[str, int], list[npt.NDArray[Any]]]] = {}
    _zstd: ClassVar = zstandard.ZstdDecompressor()

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []
        self._packed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only the encoding matters."""
        self._packed = self._packed or value == b"zstd"

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._parts.append(body)

    def on_message_complete(self) -> None:
        """Decode, store in the ring, answer."""
        body = b"".join(self._parts)
        self._parts.clear()
        batch = decode_batch(self._zstd.decompress(body) if self._packed else body)
        numbers = [np.frombuffer(table.f32, "<f4") for table in batch.tables]
        numbers += [np.frombuffer(table.f64, "<f8") for table in batch.tables]
        slots = self.ring.setdefault((batch.node_id, batch.seq % RING), [])
        if slots:
            for slot, values in zip(slots, numbers, strict=True):
                np.copyto(slot, values)
        else:
            slots += [values.copy() for values in numbers]
        self._transport.write(_OK + _ACK)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Bare, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[tuple[int, int]]:
    """A VictoriaMetrics of its own; process id and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / "vm.log").open("wb") as log:
        process = subprocess.Popen(
            [VM, f"-storageDataPath={folder / 'vm'}", f"-httpListenAddr=127.0.0.1:{port}"],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/health")
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(url: str) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def remote_write_bodies(nodes: int, series: int, interval_s: float) -> list[bytes]:
    """Encoded and compressed requests, one a node and round: VM_ROUNDS rounds, `series` each."""
    random = np.random.default_rng(1)
    labels = [
        [
            _labels(__name__=f"metric_{n % 150}", entity=f"gpu{n // 150}", node=f"n{node:06d}")
            for n in range(series)
        ]
        for node in range(nodes)
    ]
    began = int(time.time() * 1000) - int(VM_ROUNDS * interval_s * 1000)
    bodies = []
    for number in range(VM_ROUNDS):
        at = began + int(number * interval_s * 1000)
        for node in range(nodes):
            values = _values(number, series, random)
            bodies.append(_request(labels[node], values, at))
    return bodies


def _values(number: int, series: int, random: np.random.Generator) -> Sequence[float]:
    """As in the fleet: about half counters, half of them still; gauges change."""
    half = series // 2
    counters = np.floor(1e6 * (number + random.uniform(0, 0.9, half)))
    counters[: half // 2] = 0
    gauges = random.uniform(10, 90, series - half).astype(np.float32)
    found: list[float] = [*counters.tolist(), *gauges.tolist()]
    return found


def _labels(**labels: str) -> bytes:
    return b"".join(
        _field(1, _field(1, name.encode()) + _field(2, value.encode()))
        for name, value in labels.items()
    )


def _request(labels: Sequence[bytes], values: Sequence[float], at_ms: int) -> bytes:
    """prompb.WriteRequest: timeseries = 1; TimeSeries: labels = 1, samples = 2; Sample: 1, 2."""
    stamp = b"\x10" + _varint(at_ms)
    parts = [
        _field(1, names + _field(2, b"\x09" + struct.pack("<d", value) + stamp))
        for names, value in zip(labels, values, strict=True)
    ]
    return bytes(cramjam.snappy.compress_raw(b"".join(parts)))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def send_all(port: int, bodies: Sequence[bytes]) -> None:
    """Post them over one connection, as fast as they are taken."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {
        "Content-Encoding": "snappy",
        "Content-Type": "application/x-protobuf",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    for body in bodies:
        connection.request("POST", "/api/v1/write", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"VictoriaMetrics answered {answer.status}")
    connection.close()


if __name__ == "__main__":
    uvloop.run(_serve())
