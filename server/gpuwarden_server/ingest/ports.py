"""What ingest needs from the layers above it; app.py plugs them in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection

from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import JoinedTables
from gpuwarden_wire.acknowledgement import NodeVerdict
from gpuwarden_wire.events import Event


class EventSink(Protocol):
    """Takes events that are durable, and word of values that cannot wait."""

    def look_soon(self) -> None:
        """A value that announces a fault has changed, and is in the columnar state.

        Called on the event loop, possibly very often; must not block.
        """
        ...

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


class NodeDraft(Protocol):
    """One node's records while a transaction works on them; nobody else sees it yet."""

    def resolve(self, event: Event) -> EntityRef | None:
        """The entity that an event speaks about, its pci_bus_id joined to the GPU in that slot.

        Returns:
            None where it speaks of a GPU that this node is not known to have: it stays on the node.
        """
        ...

    def note_contact(self, agent_version: str, interval_s: float) -> None:
        """Take the header of a batch over."""
        ...

    def note_event(self, event: Event, boot_id: str) -> None:
        """Take an inventory or a boot over."""
        ...

    def save(self, connection: Connection) -> None:
        """Write what changed, in the transaction of the events."""
        ...

    def adopt(self) -> None:
        """Make the draft the truth, after its commit."""
        ...


class NodeDirectory(Protocol):
    """What the fleet is made of."""

    def draft(self, node_id: str, at: float) -> NodeDraft:
        """A draft of one node, made where it is new; `at` is the server's epoch seconds."""
        ...

    @property
    def ownership(self) -> int:
        """Raised whenever a GPU is new or belongs to another node than before."""
        ...

    def owner_of(self, gpu_uuid: str) -> str | None:
        """Node that the GPU belongs to, None for a GPU never seen."""
        ...

    def knows_boot(self, node_id: str, boot_id: str) -> bool:
        """Whether the boot was announced."""
        ...

    def contact_is_news(self, node_id: str, agent_version: str, interval_s: float) -> bool:
        """Whether a batch's header says something new about its node, a new node included."""
        ...


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


class TelemetryKeeper(Protocol):
    """Keeps telemetry beyond the columnar state."""

    def note(self, node_id: str, batch: JoinedTables) -> None:
        """Keep what was applied; called under the lock of the columnar state, at every batch."""
        ...

    def snapshot(self, node_ids: Sequence[str]) -> Callable[[], bytes]:
        """What it holds of some nodes that is not durable yet, as of now.

        Called under the lock of the columnar state, so that a checkpoint has the readings that its
        sequences say; the result, called without it, gives the bytes.
        """
        ...

    def restore(self, body: bytes, present: Callable[[str], str]) -> None:
        """Take over what `snapshot` gave, at the start.

        Args:
            body: What it gave.
            present: What a node in it is called now.

        Raises:
            msgspec.DecodeError: It is something else; nothing was taken over.
        """
        ...
