"""Where the exclusion feed stands, what each change did, and how both travel to readers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuwarden_server.streams.frames import Frame, Standing, event_frame
from gpuwarden_verdict.exclusions import Exclusion, PlannedLeave


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedHead:
    """Where a feed stands.

    Attributes:
        feed_id: Random id of the database.
        epoch: Rises by one with every change.
        count: Exclusions in force.
        digest: SHA-256 hex over the set in force, see `gpuwarden_verdict.exclusions.digest`.
    """

    feed_id: str
    epoch: int
    count: int
    digest: str

    @property
    def tag(self) -> str:
        """The position as event id and ETag: "FEED_ID:EPOCH"."""
        return f"{self.feed_id}:{self.epoch}"


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One change: where it led to, when, and what it added (or replaced) and removed.

    `planned` is all that is planned from then on, None where that did not change.
    """

    head: FeedHead
    at: float
    added: tuple[Exclusion, ...]
    removed: tuple[Exclusion, ...]
    planned: tuple[PlannedLeave, ...] | None = None


def exclusion_form(exclusion: Exclusion) -> dict[str, Any]:
    """The JSON form of one exclusion; the rung by name."""
    form: dict[str, Any] = msgspec.to_builtins(exclusion)
    form["rung"] = exclusion.rung.name.lower()
    return form


def exclusions_json(exclusions: Iterable[Exclusion]) -> bytes:
    """JSON list of exclusions."""
    return msgspec.json.encode([exclusion_form(exclusion) for exclusion in exclusions])


def frame_of(change: FeedChange) -> Frame:
    """The change as a server-sent event."""
    added, removed = exclusions_json(change.added), exclusions_json(change.removed)
    return stored_frame(change.head, added, removed, planned_json(change.planned))


def planned_json(planned: tuple[PlannedLeave, ...] | None) -> bytes | None:
    """JSON list of what is planned, None where that did not change."""
    return None if planned is None else msgspec.json.encode(planned)


def stored_frame(head: FeedHead, added: bytes, removed: bytes, planned: bytes | None) -> Frame:
    """A change's server-sent event from the JSON lists that the feed log keeps."""
    told = {
        "feed_id": head.feed_id,
        "epoch": head.epoch,
        "count": head.count,
        "digest": head.digest,
        "added": msgspec.Raw(added),
        "removed": msgspec.Raw(removed),
    }
    if planned is not None:
        told["planned"] = msgspec.Raw(planned)
    return Frame(head.epoch, event_frame(head.tag, "exclusions", msgspec.json.encode(told)))


def standing_of(head: FeedHead) -> Standing:
    """Where the feed stands, for a reader that resumes from nothing we know."""
    body = event_frame(head.tag, "state", msgspec.json.encode(head))
    return Standing(head.feed_id, head.epoch, body)
