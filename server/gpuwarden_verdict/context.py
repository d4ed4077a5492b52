"""What detectors may know besides the event or the windows: values, made by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwarden_kernel_log import xid_entry
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.job_ends import JobEnd
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.origin import origin_proven
from gpuwarden_verdict.tuning.rules import NO_TUNING, Tuning
from gpuwarden_wire.events import Event, EventKind, GpuIdentity
from gpuwarden_wire.metrics import EntityKind

PAIRING_S = 5.0
"""The same XID from NVML and from the kernel log within this time is one occurrence."""

CHAIN_S = 30.0
"""XID 154 belongs to the first cause within this time before or after; also how long a chain of
faults is looked at as one."""

REPEAT_S = 86400.0
"""How long XIDs are remembered, so that the same one is known when it comes again."""

_MOST_NEAR = 159  # a storm of echoes must not make each further event dearer
_MOST_REPEATS = 96  # more than eight GPUs need for what a program makes all of them tell
_MOST_OF_A_CODE = 8

BOOT_GRACE_S = 300.0
"""After a boot, links train and devices appear one by one: NVSentinel#1701 flagged 214 nodes at
planned reboots. Absence and link states are not judged in this time."""


@dataclass(frozen=True, slots=True)
class RecentEvent:
    """An event of this node, with the entity it was joined to."""

    event: Event
    ref: EntityRef


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What is known of the node an event came from.

    Attributes:
        node_id: The node.
        boot_id: Boot of the batch that brought the event.
        booted_at: Epoch seconds of that boot, None where unknown.
        gpus: GPUs by PCI bus id (lower-case dddd:bb:dd.f).
        recent: Events of this node within CHAIN_S, and XIDs that may repeat within REPEAT_S, oldest
            first, the present one excluded.
        pool: Its pool, "" where it is not known.
        tuning: What the policy says of detectors.
    """

    node_id: str
    boot_id: str
    booted_at: float | None = None
    gpus: Mapping[str, GpuIdentity] = field(default_factory=dict)
    recent: tuple[RecentEvent, ...] = ()
    pool: str = ""
    tuning: Tuning = NO_TUNING

    def lately(self, ref: EntityRef, at: float) -> tuple[Event, ...]:
        """Recent events of an entity within CHAIN_S of `at` (epoch seconds), oldest first."""
        return tuple(
            past.event
            for past in self.recent
            if past.ref == ref and abs(past.event.observed_at - at) <= CHAIN_S
        )

    def in_boot_grace(self, at: float) -> bool:
        """Whether `at` (epoch seconds) is within BOOT_GRACE_S after the boot."""
        return self.booted_at is not None and 0.0 <= at - self.booted_at < BOOT_GRACE_S


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a node lacks by the server's own record.

    Attributes:
        absent: GPUs that were there and that it names no more, those seen last first.
        released: GPUs that it names no more and that nobody misses: taken out by a repair that a
            passed check ended, or with another driver on purpose.
        left: How many were there and are known to be gone for good: in another node by now, or
            taken out by a repair.
    """

    absent: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where a node stands; "" and () where nobody said.

    Attributes:
        rack: Rack.
        leaf: Leaf switch of the training fabric.
        power: Power domain.
        mounts: Mount points of network file systems that it should have.
    """

    rack: str = ""
    leaf: str = ""
    power: str = ""
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetContext:
    """What is known of the fleet at a sweep.

    Attributes:
        models: Product name by gpu_uuid.
        pools: Pool name by node id.
        gpus_expected: Expected GPUs by node id, as the server remembers; a node that expects more
            (node_gpus_expected) is believed.
        gpus_expected_set: Nodes whose number an operator set: no other number holds there.
        gpus_declared: Those of them whose number the inventory has: it goes before what the node's
            own agent was told.
        shortfalls: What nodes lack by the server's own record, by node id.
        silent_nodes: Nodes not heard of, retired ones among them: nothing is concluded from their
            last readings.
        booted_at: Epoch seconds of the present boot by node id.
        boot_ids: Present boot by node id.
        jobs: Job by gpu_uuid, as "KIND:ID" ("slurm:4711"); a GPU without one has no job that is
            known.
        jobs_began: When each of these jobs was first seen to run, epoch seconds; without those that
            ran before this process started.
        places: Where nodes stand, by node id.
        silent_since: When each node that is not heard of was last, epoch seconds; of those that
            were heard of since the start.
        unheard: Nodes that were not heard of since this process started: whether they are back is
            not known.
        maintenance: Why, by id of each node that is under maintenance.
        diagnosed: Nodes that a diagnosed fault of storage, fabric or a job hits, by key of the
            place.
        job_ends: Ends of jobs within the last day, by node id, of nodes where one went badly.
        memory: What detectors remember from sweep to sweep.
        tuning: What the policy says of detectors.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    pools: Mapping[str, str] = field(default_factory=dict)
    gpus_expected: Mapping[str, int] = field(default_factory=dict)
    gpus_expected_set: frozenset[str] = frozenset()
    gpus_declared: frozenset[str] = frozenset()
    shortfalls: Mapping[str, Shortfall] = field(default_factory=dict)
    silent_nodes: frozenset[str] = frozenset()
    booted_at: Mapping[str, float] = field(default_factory=dict)
    boot_ids: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    jobs_began: Mapping[str, float] = field(default_factory=dict)
    places: Mapping[str, NodePlace] = field(default_factory=dict)
    silent_since: Mapping[str, float] = field(default_factory=dict)
    unheard: frozenset[str] = frozenset()
    maintenance: Mapping[str, str] = field(default_factory=dict)
    diagnosed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    job_ends: Mapping[str, tuple[JobEnd, ...]] = field(default_factory=dict)
    memory: SweepMemory = field(default_factory=SweepMemory)
    tuning: Tuning = NO_TUNING


def entity_of(event: Event, node: NodeContext) -> EntityRef:
    """The entity an event speaks about, named uniquely over the fleet.

    An event that names a GPU only by its PCI address is joined over the node's inventory; where the
    address is not known there, it is the node's.
    """
    if event.pci_bus_id is not None and event.entity_kind in (EntityKind.NODE, EntityKind.GPU):
        gpu = node.gpus.get(event.pci_bus_id)
        if gpu is not None and not event.entity:
            return EntityRef(EntityKind.GPU, gpu.gpu_uuid, node.node_id)
    return entity_named(event.entity_kind, event.entity, node.node_id)


def entity_named(kind: EntityKind, entity: str, node_id: str) -> EntityRef:
    """The fleet-wide reference of an entity as a node's batch names it."""
    if kind is EntityKind.NODE or not entity:
        return EntityRef(EntityKind.NODE, node_id, node_id)
    if kind is EntityKind.GPU:
        return EntityRef(EntityKind.GPU, entity, node_id)
    return EntityRef(kind, f"{node_id}/{entity}", node_id)


def occurrences(event: Event, ref: EntityRef, recent: Sequence[RecentEvent]) -> int:
    """How many new occurrences an event stands for, at least 0.

    0 where the same XID on the same entity was already told by the other source (kernel log or
    NVML) within PAIRING_S, else the event's own merged count.
    """
    if event.xid is None:
        return event.count
    for past in recent:
        same = past.ref == ref and past.event.xid == event.xid and past.event.kind is not event.kind
        paired = same and abs(past.event.observed_at - event.observed_at) <= PAIRING_S
        if paired and origin_proven(past.event):
            return 0
    return event.count


def remember(
    recent: Sequence[RecentEvent], event: Event, ref: EntityRef
) -> tuple[RecentEvent, ...]:
    """The recent events with this one added, and those dropped that nobody asks about any more.

    Of what is older than CHAIN_S, or too much, XIDs are kept that mean more when they come again:
    the newest of each code on each entity, for REPEAT_S.
    """
    limit = event.observed_at - CHAIN_S
    near = [past for past in recent if past.event.observed_at >= limit]
    older = [past for past in recent if past.event.observed_at < limit] + near[:-_MOST_NEAR]
    repeats = _may_repeat(older, event.observed_at - REPEAT_S)
    return (*repeats[-_MOST_REPEATS:], *near[-_MOST_NEAR:], RecentEvent(event, ref))


def forget(recent: Sequence[RecentEvent], target: EntityRef, at: float) -> tuple[RecentEvent, ...]:
    """The recent events without those of a target from before `at`, when it passed a check.

    What happened before is no evidence after it. A node's check speaks of all that sits in it.
    """
    return tuple(
        past
        for past in recent
        if past.event.observed_at >= at
        or (target.kind is not EntityKind.NODE and past.ref != target)
    )


def _may_repeat(events: Sequence[RecentEvent], since: float) -> list[RecentEvent]:
    """Those worth remembering for long: of lines that say the same, one every CHAIN_S."""
    said_at: dict[tuple[EntityRef, int, str], float] = {}
    kept: dict[tuple[EntityRef, int], list[RecentEvent]] = {}
    for past in events:
        event, code = past.event, past.event.xid
        entry = xid_entry(code) if code is not None else None
        if code is None or entry is None or entry.echo or event.observed_at < since:
            continue
        line = (past.ref, code, event.text)
        again = line in said_at and event.observed_at - said_at[line] < CHAIN_S
        if again or not origin_proven(event):
            continue
        said_at[line] = event.observed_at
        kept.setdefault((past.ref, code), []).append(past)
    newest = [past for told in kept.values() for past in told[-_MOST_OF_A_CODE:]]
    return sorted(newest, key=lambda past: past.event.observed_at)


def source_of(event: Event) -> str:
    """Where a fact was read."""
    return {
        EventKind.KERNEL_LOG: "kernel_log",
        EventKind.NVML_XID: "nvml",
        EventKind.GPU_LOST: "nvml",
        EventKind.CHECK_FAILED: "check",
    }.get(event.kind, "agent")
