"""One connected reader: what waits for it, in a bounded buffer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

READER_BUFFER_BYTES = 1 << 20
"""What may wait for one reader: about 3,000 changes of one GPU each."""

Wants = Callable[[str], bool]
"""Whether a reader wants what is about a node."""


class Reader:
    """One connected reader; used on the event loop only."""

    __slots__ = ("_frames", "_size", "_wake", "closed", "evicted", "task", "wants")

    def __init__(
        self, first: bytes, task: asyncio.Task[None] | None, wants: Wants | None = None
    ) -> None:
        """Make a reader.

        Args:
            first: What it gets first.
            task: What sends to it, to be cancelled where it hangs.
            wants: Which nodes it wants to hear of, None for all.
        """
        self._frames: deque[bytes] = deque([first])
        self._size = len(first)
        self._wake = asyncio.Event()
        self._wake.set()
        self.closed = False
        self.evicted = False
        self.task = task
        self.wants = wants

    @property
    def idle(self) -> bool:
        """True where nothing waits to be sent."""
        return not self._frames

    def offer(self, frame: bytes) -> bool:
        """Queue a frame; False where the reader's buffer is full."""
        if self._size + len(frame) > READER_BUFFER_BYTES:
            return False
        self._frames.append(frame)
        self._size += len(frame)
        self._wake.set()
        return True

    def close(self) -> None:
        """Let the reader's loop end after what is queued."""
        self.closed = True
        self._wake.set()

    def evict(self) -> None:
        """End it now: it does not read, so its task hangs where only a cancel reaches it."""
        self.evicted = True
        self.close()
        if self.task is not None:
            self.task.cancel()

    async def take(self) -> bytes:
        """All that waits, joined; b"" once the reader is closed and nothing waits."""
        while not self._frames and not self.closed:
            self._wake.clear()
            await self._wake.wait()
        chunk = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        return chunk
