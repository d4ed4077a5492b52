"""Fan-out of the exclusion feed to its readers: shared bytes, a bounded buffer a reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from gpuwarden_server.decisions.feed import FeedChange, FeedFrame, FeedHead, frame_of, state_frame

HEARTBEAT_FRAME = b": heartbeat\n\n"
REPLAY_FRAMES = 4096
"""Changes kept for resuming readers; one that was away for longer is told to read the whole set."""
READER_BUFFER_BYTES = 1 << 20
"""What may wait for one reader: about 3,000 changes of one GPU each."""


class Reader:
    """One connected reader; used on the event loop only."""

    __slots__ = ("_frames", "_size", "_wake", "closed", "task")

    def __init__(self, first: bytes, task: asyncio.Task[None] | None) -> None:
        self._frames: deque[bytes] = deque([first])
        self._size = len(first)
        self._wake = asyncio.Event()
        self._wake.set()
        self.closed = False
        self.task = task

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

    async def take(self) -> bytes:
        """All that waits, joined; b"" once the reader is closed and nothing waits."""
        while not self._frames and not self.closed:
            self._wake.clear()
            await self._wake.wait()
        chunk = b"".join(self._frames)
        self._frames.clear()
        self._size = 0
        return chunk


class FeedHub:
    """Keeps where the feed stands and hands each change to every reader.

    `publish` may be called from any thread; all else runs on the event loop that `start` ran on.
    """

    def __init__(self, registry: CollectorRegistry, heartbeat_s: float = 10.0) -> None:
        self._heartbeat_s = heartbeat_s
        self._readers: set[Reader] = set()
        self._kept: deque[FeedFrame] = deque(maxlen=REPLAY_FRAMES)
        self._head: FeedHead | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._closing = False
        self._readers_gauge = Gauge(
            "gpuwarden_feed_readers", "Connected readers of the feed.", registry=registry
        )
        self._evicted = Counter(
            "gpuwarden_feed_readers_evicted_total",
            "Readers dropped because they did not read.",
            registry=registry,
        )
        self._published = Counter(
            "gpuwarden_feed_changes_total", "Changes of the exclusion feed.", registry=registry
        )

    def start(self, head: FeedHead, recent: Iterable[FeedFrame]) -> None:
        """Take the running event loop, where the feed stands and the changes that led there."""
        self._loop = asyncio.get_running_loop()
        self._head = head
        self._kept.extend(recent)
        self._beat = self._loop.call_later(self._heartbeat_s, self._send_heartbeat)

    def publish(self, change: FeedChange) -> None:
        """Hand a committed change to all readers; callable from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._spread, change)

    def join(self, last_event_id: str) -> Reader:
        """A reader that first gets what it missed since `last_event_id`, or where the feed stands.

        Raises:
            RuntimeError: The hub has not been started.
        """
        reader = Reader(self._catch_up(last_event_id), asyncio.current_task())
        self._readers.add(reader)
        self._readers_gauge.set(len(self._readers))
        if self._closing:
            reader.close()
        return reader

    def leave(self, reader: Reader) -> None:
        """Forget a reader."""
        self._readers.discard(reader)
        self._readers_gauge.set(len(self._readers))

    @property
    def reader_count(self) -> int:
        """Connected readers."""
        return len(self._readers)

    def close(self) -> None:
        """End every stream now: a server that stops must not wait for its readers."""
        self._closing = True
        if self._beat is not None:
            self._beat.cancel()
        for reader in self._readers:
            reader.close()

    def _catch_up(self, last_event_id: str) -> bytes:
        if self._head is None:
            raise RuntimeError("the feed hub has not been started")
        feed_id, _, epoch_text = last_event_id.rpartition(":")
        if feed_id != self._head.feed_id or not epoch_text.isdecimal():
            return state_frame(self._head)
        epoch = int(epoch_text)
        if epoch == self._head.epoch:
            return HEARTBEAT_FRAME
        oldest = self._kept[0].head.epoch if self._kept else self._head.epoch + 1
        if epoch > self._head.epoch or epoch < oldest - 1:
            return state_frame(self._head)
        return b"".join(kept.frame for kept in self._kept if kept.head.epoch > epoch)

    def _spread(self, change: FeedChange) -> None:
        kept = frame_of(change)
        self._head = change.head
        self._kept.append(kept)
        self._published.inc()
        self._offer_all(kept.frame, list(self._readers))

    def _send_heartbeat(self) -> None:
        self._offer_all(HEARTBEAT_FRAME, [reader for reader in self._readers if reader.idle])
        if self._loop is not None and not self._closing:
            self._beat = self._loop.call_later(self._heartbeat_s, self._send_heartbeat)

    def _offer_all(self, frame: bytes, readers: list[Reader]) -> None:
        for reader in readers:
            if not reader.offer(frame):
                self._evict(reader)

    def _evict(self, reader: Reader) -> None:
        # Its task hangs in send(): only a cancel reaches it. The reader resumes by Last-Event-ID.
        self.leave(reader)
        self._evicted.inc()
        reader.close()
        if reader.task is not None:
            reader.task.cancel()
