"""Values that pass between the spool and its users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream, Table
from gpuwarden_wire.events import Event

LATE_S = 60.0
"""Events that waited longer may have been answered meanwhile: by a reset, a passed check."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What every batch of this agent says of itself.

    Attributes:
        node_id: Name of the node.
        boot_id: Kernel's boot id.
        agent_version: Version of the agent.
        interval_s: Telemetry cadence, seconds.
    """

    node_id: str
    boot_id: str
    agent_version: str
    interval_s: float

    def batch(
        self,
        stream: Stream,
        now: float,
        events: tuple[Event, ...] = (),
        tables: tuple[Table, ...] = (),
    ) -> Batch:
        """A batch as it lies in the store: without what is filled in when it is sent."""
        return Batch(
            version=WIRE_VERSION,
            node_id=self.node_id,
            spool_id="",
            stream=stream,
            seq=0,
            boot_id=self.boot_id,
            agent_version=self.agent_version,
            sent_at=now,
            interval_s=self.interval_s,
            tables=tables,
            events=events,
        )

    def is_late(self, sealed: Batch, now: float) -> bool:
        """Whether what ended the faults of a batch of events may wait behind it.

        Told by this clock alone; where it was set back since, nothing is known of the wait.
        """
        return sealed.boot_id != self.boot_id or not 0.0 <= now - sealed.sent_at <= LATE_S


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch as it lies in a store.

    Attributes:
        id: Order of sealing over both streams.
        stream: events or telemetry.
        seq: Sequence on the wire; None for telemetry that was not sent yet.
        body: Encoded batch without its sequence.
    """

    id: int
    stream: Stream
    seq: int | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The next batch to send, complete but for schemas.

    Attributes:
        entry_id: Names it towards the spool.
        batch: The batch, its sequence filled in.
    """

    entry_id: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class SpoolSize:
    """How full the spool is.

    Attributes:
        events: Batches of events waiting or not durable yet.
        telemetry: Batches of telemetry waiting or not durable yet.
        payload_bytes: Bytes of all of them.
        in_memory: How many of them could not be written to disk.
    """

    events: int
    telemetry: int
    payload_bytes: int
    in_memory: int


def size_of(
    disk: Mapping[Stream, tuple[int, int]], memory: Mapping[Stream, tuple[int, int]] | None = None
) -> SpoolSize:
    """Of batches and bytes by stream, on disk and in memory."""
    stores = [disk, memory or {}]
    return SpoolSize(
        events=sum(one[Stream.EVENTS][0] for one in stores if one),
        telemetry=sum(one[Stream.TELEMETRY][0] for one in stores if one),
        payload_bytes=sum(size for one in stores for _, size in one.values()),
        in_memory=sum(count for count, _ in stores[1].values()),
    )


class SpoolUnusable(Exception):
    """The spool folder cannot be used at all; the message names it and the mend."""
