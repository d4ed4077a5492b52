"""Very many readers of a stream on one event loop, some of which do not read."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

CONNECTS_AT_ONCE = 50
READ_LIMIT_BYTES = 32 * 1024 * 1024


@dataclass
class Seat:
    """One reader.

    Attributes:
        reader: What comes.
        writer: Its connection.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def heard(self, word: bytes) -> float:
        """Monotonic time at which `word` has come."""
        await self.reader.readuntil(word)
        return time.monotonic()


@dataclass
class Crowd:
    """Readers that read, and readers that hold their connection and do not."""

    seats: list[Seat]
    stalled: list[socket.socket]

    async def all_heard(self, word: bytes) -> list[float]:
        """When each reading one has heard `word`."""
        return list(await asyncio.gather(*(seat.heard(word) for seat in self.seats)))

    async def close(self) -> None:
        """All leave."""
        for connection in self.stalled:
            connection.close()
        for seat in self.seats:
            seat.writer.close()
        for seat in self.seats:
            with suppress(OSError):  # the server was quicker
                await seat.writer.wait_closed()


async def gather_crowd(
    url: str, path: str, key: str, reading: int, stalled: int, last_event_id: str = ""
) -> Crowd:
    """Connect; returns once each reading one is answered."""
    crowd = Crowd([], [])
    gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
    request = _request(url, path, key, last_event_id)

    async def join() -> None:
        async with gate:
            parts = urlsplit(url)
            reader, writer = await asyncio.open_connection(
                parts.hostname, parts.port, limit=READ_LIMIT_BYTES
            )
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n")
            crowd.seats.append(Seat(reader, writer))

    for _ in range(stalled):
        crowd.stalled.append(await asyncio.to_thread(_stalled, url, request))
    await asyncio.gather(*(join() for _ in range(reading)))
    return crowd


def _stalled(url: str, request: bytes) -> socket.socket:
    """A connection with a tiny window whose owner asks and never reads."""
    parts = urlsplit(url)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    connection.connect((parts.hostname, parts.port))
    connection.sendall(request)
    return connection


def _request(url: str, path: str, key: str, last_event_id: str) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Authorization: Bearer {key}",
    ]
    if last_event_id:
        lines.append(f"Last-Event-ID: {last_event_id}")
    return "\r\n".join([*lines, "", ""]).encode()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
