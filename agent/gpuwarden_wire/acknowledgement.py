"""What the server answers to a batch, and the verdict that rides along."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from gpuwarden_wire.batches import Stream


class Usable(StrEnum):
    """May this be used now? UNKNOWN (never seen, agent silent) warns, never excludes."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class EntityVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about one entity.

    Attributes:
        entity_kind: node or gpu.
        entity: Node id or gpu_uuid.
        usable: NO exactly when an exclusion in force covers the entity.
        state: Entity state (healthy, suspect, excluded, draining, in_repair, probation), "unknown".
        since: Epoch seconds since when, null where never judged.
        why: One sentence with the numbers; "" where there is nothing to say.
        confidence: 0..1, null where no judgement stands behind it.
        action: Recommended action: none, exclude, drain, reset_gpu, reboot_node, repair …
        decided_by: "rule", "score", "operator:NAME", "pin"; "" where nobody decided.
        decision_id: Decision in force, null else.
        would: What act mode would do, "" where it would do nothing more.
        pci_bus_id: For GPUs.
        index: For GPUs, display only.
    """

    entity_kind: str
    entity: str
    usable: Usable
    state: str = "unknown"
    since: float | None = None
    why: str = ""
    confidence: float | None = None
    action: str = "none"
    decided_by: str = ""
    decision_id: str | None = None
    would: str = ""
    pci_bus_id: str | None = None
    index: int | None = None


class NodeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict about a node: NO when the node or any of its GPUs is excluded.

    Attributes:
        node_id: Name of the node.
        node: The verdict about the whole node, its GPUs' exclusions included.
        gpus: One verdict a GPU.
        feed_id: Random id of the server's database.
        epoch: Epoch of the exclusion feed that this verdict reflects.
        issued_at: Server's UTC, epoch seconds.
    """

    node_id: str
    node: EntityVerdict
    gpus: tuple[EntityVerdict, ...]
    feed_id: str
    epoch: int
    issued_at: float


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to one batch.

    Attributes:
        stream: Stream of the batch.
        applied_seq: Highest sequence of this spool and stream that is applied.
        durable_seq: Highest sequence that survives a crash of the server; the agent trims to it.
        replayed: True where the batch had been applied before.
        feed_id: Random id of the server's database.
        epoch: Present epoch of the exclusion feed.
        verdict: The node's verdict: on the first batch of a connection and whenever it changed.
    """

    stream: Stream
    applied_seq: int
    durable_seq: int
    replayed: bool = False
    feed_id: str = ""
    epoch: int = 0
    verdict: NodeVerdict | None = None


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """RFC 9457 problem details.

    Attributes:
        type: "urn:gpuwarden:problem:CODE".
        title: Short, the same for every occurrence.
        status: HTTP status.
        code: Stable machine-readable code: schema_required, sequence_conflict, node_claimed, …
        detail: This occurrence: names the input.
        mend: What to do about it.
        leader: URL of the leading server, with 503.
        schemas: Hashes wanted, with 428.
    """

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    mend: str = ""
    leader: str | None = None
    schemas: tuple[str, ...] = ()
