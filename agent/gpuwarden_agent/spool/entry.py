"""Values that pass between the spool and its users."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_wire.batches import Batch, Stream


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


class SpoolUnusable(Exception):
    """The spool folder cannot be used at all; the message names it and the mend."""
