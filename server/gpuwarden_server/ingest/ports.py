"""What ingest needs from the layers above it; app.py plugs them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuwarden_server.ingest.domain import StoredEvent
from gpuwarden_wire.acknowledgement import NodeVerdict


class EventSink(Protocol):
    """Takes events that are durable."""

    def events_stored(self, events: Sequence[StoredEvent]) -> None:
        """Called on the event loop, after the commit and before the acknowledgement.

        Must not block: put them on a queue. An event may come again after a restart (the judge
        restarts from its own position in the table), never before it is durable.
        """
        ...


@dataclass(frozen=True, slots=True)
class VerdictReply:
    """A node's verdict with what makes it recognisable.

    Attributes:
        marker: Changes whenever the node's verdict does (and only then, where that is cheap).
        verdict: The verdict.
    """

    marker: int
    verdict: NodeVerdict


class VerdictSource(Protocol):
    """Knows the present verdict of every node; called on the event loop at every batch: no I/O."""

    @property
    def feed_id(self) -> str:
        """Random id of the database."""
        ...

    @property
    def epoch(self) -> int:
        """Present epoch of the exclusion feed."""
        ...

    def verdict_if_changed(self, node_id: str, marker: int | None) -> VerdictReply | None:
        """The node's verdict where it differs from what `marker` stands for.

        Args:
            node_id: The node.
            marker: Of the verdict sent last on this connection, None on a connection's first batch.

        Returns:
            None where nothing changed.
        """
        ...
