"""Many readers of a stream on one event loop, at the least cost a reader."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

CONNECTS_AT_ONCE = 100
_TAIL = 64
"""Bytes of one read that are kept for the next: a marker may be cut in two."""


class Ear(asyncio.Protocol):
    """One reader: counts events by a marker that each has once, and says when the newest came."""

    def __init__(self, request: bytes, hall: Hall) -> None:
        self._request = request
        self._hall = hall
        self._rest = b""
        self._answered = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.transport.write(self._request)

    def data_received(self, received: bytes) -> None:
        """Look for what is waited for."""
        now = time.monotonic()
        text = self._rest + received
        if not self._answered and b"\r\n\r\n" in text:
            self._answered = True
            if not text.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(text[:200].decode(errors="replace"))
            self._hall.note_answer()
        if self._hall.marker and self._hall.marker in text:
            self._hall.note(now, text)
            text = b""
        self._rest = text[-_TAIL:]


@dataclass
class Hall:
    """All readers.

    Attributes:
        marker: Bytes of the event that is waited for, b"" for none.
        arrivals: When each reader had it, monotonic seconds.
        published_at: When it was published, as the event itself says.
    """

    marker: bytes = b""
    arrivals: list[float] = field(default_factory=list)
    published_at: float = 0.0
    _ears: list[Ear] = field(default_factory=list)
    _answered: int = 0
    _wanted: int = 0
    _done: asyncio.Event = field(default_factory=asyncio.Event)

    async def fill(self, url: str, path: str, key: str, count: int) -> None:
        """Connect so many; returns once all are answered."""
        parts = urlsplit(url)
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n"
        loop = asyncio.get_running_loop()
        gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def join() -> None:
            async with gate:
                _, ear = await loop.create_connection(
                    lambda: Ear(head.encode(), self), parts.hostname or "", parts.port or 80
                )
                self._ears.append(ear)

        await asyncio.gather(*(join() for _ in range(count)))
        while self._answered < count:
            await asyncio.sleep(0.01)

    def expect(self, marker: bytes) -> None:
        """Wait for the event with these bytes from now on."""
        self.marker, self.arrivals = marker, []
        self._wanted = len(self._ears)
        self._done.clear()

    async def heard(self, timeout_s: float) -> list[float]:
        """Seconds from its publication to each reader, once all have it.

        Raises:
            TimeoutError: Not all had it in time.
        """
        await asyncio.wait_for(self._done.wait(), timeout_s)
        return [at - self.published_at for at in self.arrivals]

    async def leave(self) -> None:
        """All close their connections."""
        for ear in self._ears:
            if ear.transport is not None:
                ear.transport.abort()
        await asyncio.sleep(0.1)

    def note(self, at: float, text: bytes) -> None:
        """A reader has it."""
        if not self.arrivals and b'"at": ' in text:
            self.published_at = _published_at(text)
        self.arrivals.append(at)
        if len(self.arrivals) == self._wanted:
            self._done.set()

    def note_answer(self) -> None:
        """A reader was answered."""
        self._answered += 1


def _published_at(text: bytes) -> float:
    line = next(one for one in text.splitlines() if one.startswith(b"data: ") and b'"at"' in one)
    return float(json.loads(line.removeprefix(b"data: "))["at"])
