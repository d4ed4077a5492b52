"""What travels over a stream: one position, one event, the same bytes for every reader."""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEAT = b": heartbeat\n\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream.

    Attributes:
        position: Rises from frame to frame.
        body: The server-sent event, id included.
        node_id: What it is about, for readers that want some nodes only; "" for the whole fleet.
    """

    position: int
    body: bytes
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a stream stands.

    Attributes:
        feed_id: Random id of the database: positions of another one mean nothing here.
        position: Of the newest frame, 0 before the first.
        body: Server-sent event that says so, to a reader whose position is not known.
    """

    feed_id: str
    position: int
    body: bytes

    @property
    def tag(self) -> str:
        """The position as event id: "FEED_ID:POSITION"."""
        return f"{self.feed_id}:{self.position}"


def event_frame(tag: str, event: str, body: bytes) -> bytes:
    """A server-sent event of one line of JSON."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (tag.encode(), event.encode(), body)
