"""Fan-out of one stream to its readers: shared bytes, a bounded buffer a reader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from gpuwarden_server.streams.frames import HEARTBEAT, Frame, Standing
from gpuwarden_server.streams.meters import StreamMeters
from gpuwarden_server.streams.reader import Reader, Wants

REPLAY_FRAMES = 4096
"""Frames kept for resuming readers; one that was away for longer is told where the stream stands.

They are read back from the database at the start, so that a restart costs nobody anything.
"""
HEARTBEAT_S = 10.0


class StreamHub:
    """Keeps where a stream stands and hands each frame to every reader that wants it.

    `publish` may be called from any thread; all else runs on the event loop that `start` ran on.
    """

    def __init__(self, name: str, meters: StreamMeters, heartbeat_s: float = HEARTBEAT_S) -> None:
        """Make a hub; `start` gives it its past.

        Args:
            name: Of the stream, as figures have it.
            meters: Figures of all streams.
            heartbeat_s: Seconds after which a reader that hears nothing is sent a heartbeat.
        """
        self._heartbeat_s = heartbeat_s
        self._readers: set[Reader] = set()
        self._kept: deque[Frame] = deque(maxlen=REPLAY_FRAMES)
        self._standing: Standing | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._closing = False
        self._readers_gauge = meters.readers.labels(stream=name)
        self._evicted = meters.evicted.labels(stream=name)
        self._published = meters.published.labels(stream=name)

    def start(self, standing: Standing, recent: Iterable[Frame]) -> None:
        """Take the running event loop, where the stream stands and the frames that led there."""
        self._loop = asyncio.get_running_loop()
        self._standing = standing
        self._kept.extend(recent)
        self._beat = self._loop.call_later(self._heartbeat_s, self._send_heartbeat)

    def publish(self, frames: Sequence[Frame], standing: Standing) -> None:
        """Hand committed frames to all readers, in order; callable from any thread.

        Args:
            frames: In order.
            standing: Where they led to.
        """
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._spread, frames, standing)

    def join(self, last_event_id: str, wants: Wants | None = None) -> Reader:
        """A reader that first gets what it missed since `last_event_id`, or where all stands.

        Args:
            last_event_id: "FEED_ID:POSITION" of what it has; anything else is no position.
            wants: Which nodes it wants to hear of, None for all.

        Raises:
            RuntimeError: The hub has not been started.
        """
        reader = Reader(self._catch_up(last_event_id, wants), asyncio.current_task(), wants)
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

    def _catch_up(self, last_event_id: str, wants: Wants | None) -> bytes:
        standing = self._standing
        if standing is None:
            raise RuntimeError("the hub has not been started")
        feed_id, _, text = last_event_id.rpartition(":")
        if feed_id != standing.feed_id or not (text.isascii() and text.isdecimal()):
            return standing.body
        position = int(text)
        oldest = self._kept[0].position if self._kept else standing.position + 1
        if position > standing.position or position < oldest - 1:
            return standing.body
        missed = [one for one in self._kept if one.position > position]
        return b"".join(one.body for one in missed if _is_wanted(one, wants)) or HEARTBEAT

    def _spread(self, frames: Sequence[Frame], standing: Standing) -> None:
        self._standing = standing
        self._kept.extend(frames)
        self._published.inc(len(frames))
        for frame in frames:
            wanting = [one for one in self._readers if _is_wanted(frame, one.wants)]
            self._offer_all(frame.body, wanting)

    def _send_heartbeat(self) -> None:
        beat = HEARTBEAT
        if self._standing is not None:
            # An id alone moves a reader's position and is no event: one that hears nothing for
            # days, since it wants few nodes, resumes from here and not from its last event.
            beat = b"id: %b\n%b" % (self._standing.tag.encode(), HEARTBEAT)
        idle = [reader for reader in self._readers if reader.idle]
        self._offer_all(HEARTBEAT, [one for one in idle if one.wants is None])
        self._offer_all(beat, [one for one in idle if one.wants is not None])
        if self._loop is not None and not self._closing:
            self._beat = self._loop.call_later(self._heartbeat_s, self._send_heartbeat)

    def _offer_all(self, frame: bytes, readers: list[Reader]) -> None:
        for reader in readers:
            if not reader.offer(frame):
                self.leave(reader)
                self._evicted.inc()
                reader.evict()  # it resumes by Last-Event-ID


def _is_wanted(frame: Frame, wants: Wants | None) -> bool:
    return wants is None or not frame.node_id or wants(frame.node_id)
