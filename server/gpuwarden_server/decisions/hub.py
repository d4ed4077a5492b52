"""The stream of the exclusion feed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwarden_server.decisions.feed import FeedChange, FeedHead, frame_of, standing_of
from gpuwarden_server.streams.frames import Frame
from gpuwarden_server.streams.hub import HEARTBEAT_S, StreamHub
from gpuwarden_server.streams.meters import StreamMeters

EXCLUSIONS = "exclusions"


class FeedHub:
    """Hands changes of the exclusion set to their readers.

    Attributes:
        stream: The readers.
    """

    def __init__(self, meters: StreamMeters, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.stream = StreamHub(EXCLUSIONS, meters, heartbeat_s)
        self._followers: list[Callable[[], None]] = []

    def follow(self, told: Callable[[], None]) -> None:
        """Call `told` after each change, from the judge's thread; it must not block."""
        self._followers.append(told)

    def start(self, head: FeedHead, recent: Iterable[Frame]) -> None:
        """Take the running event loop, where the feed stands and the changes that led there."""
        self.stream.start(standing_of(head), recent)

    def publish(self, change: FeedChange) -> None:
        """Hand a committed change to all readers; callable from any thread."""
        self.stream.publish((frame_of(change),), standing_of(change.head))
        for told in self._followers:
            told()

    def close(self) -> None:
        """End every reader now."""
        self.stream.close()
