"""The fleet as it is now: nodes and GPUs, as their inventories and boots tell. In memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock

from gpuwarden_verdict.engine.fleet import (
    GpuRecord,
    NodeRecord,
    apply_boot,
    apply_inventory,
    gpu_in_slot,
    place_gpus,
)
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.jobs import job_name
from gpuwarden_wire.events import Event, EventKind, Inventory
from gpuwarden_wire.metrics import EntityKind

JOB_LOOK_S = 60.0
"""How late the inventory may tell that a job has begun or ended."""


@dataclass(frozen=True, slots=True)
class _JobSpan:
    """What ran on a GPU before its present job, or its present idleness, and since when."""

    former: str
    since: float


class Directory:
    """Nodes and GPUs by id; records are immutable, so what a reader got stays what it was.

    Written by one thread only (`take_over`), read from any.
    """

    def __init__(self, is_live: Callable[[str], bool]) -> None:
        """Make an empty directory.

        Args:
            is_live: Whether a node is heard of at present. A GPU that a live node still has is
                not given to another node that claims it.
        """
        self._is_live = is_live
        self._lock = Lock()
        self._nodes: dict[str, NodeRecord] = {}
        self._gpus: dict[str, GpuRecord] = {}
        self._by_node: dict[str, dict[str, GpuRecord]] = {}
        self._claims: dict[str, Inventory] = {}
        self._departed: dict[str, set[str]] = {}
        self._ownership = 0
        self._jobs: dict[str, str] = {}
        self._jobs_shown: Mapping[str, str] | None = None
        self._job_spans: dict[str, _JobSpan] = {}
        self._job_gpus: Counter[str] = Counter()
        self._job_began: dict[str, float] = {}

    @property
    def ownership(self) -> int:
        """Raised whenever a GPU is new or belongs to another node than before."""
        return self._ownership

    def fill(
        self,
        nodes: Iterable[NodeRecord],
        gpus: Iterable[GpuRecord],
        departures: Iterable[tuple[str, str]],
    ) -> None:
        """Begin with what was known before.

        Args:
            nodes: All nodes.
            gpus: All GPUs.
            departures: GPU and former node of every GPU that sits in another one by now.
        """
        with self._lock:
            self._nodes = {node.node_id: node for node in nodes}
            self._gpus, self._by_node = {}, {}
            self._jobs, self._jobs_shown = {}, None
            self._job_spans, self._job_began = {}, {}
            self._job_gpus = Counter()
            for gpu in gpus:
                self._put(gpu)
            self._departed = {}
            for gpu_uuid, node_id in departures:
                self._departed.setdefault(node_id, set()).add(gpu_uuid)

    def node(self, node_id: str) -> NodeRecord | None:
        """One node, None where it was never seen."""
        return self._nodes.get(node_id)

    def nodes(self) -> list[NodeRecord]:
        """All nodes by name."""
        with self._lock:
            return sorted(self._nodes.values(), key=lambda node: node.node_id)

    def gpu(self, gpu_uuid: str) -> GpuRecord | None:
        """One GPU, None where it was never seen."""
        return self._gpus.get(gpu_uuid)

    def gpus(self) -> list[GpuRecord]:
        """All GPUs, by node and slot."""
        with self._lock:
            return sorted(self._gpus.values(), key=lambda gpu: (gpu.node_id, gpu.pci_bus_id))

    def all_gpus(self) -> list[GpuRecord]:
        """All GPUs, in no order: sorting a big fleet's takes longer than looking at it."""
        with self._lock:
            return list(self._gpus.values())

    def gpus_of(self, node_id: str) -> list[GpuRecord]:
        """GPUs of a node, by slot; those off the bus too (`present` tells)."""
        with self._lock:
            held = list(self._by_node.get(node_id, {}).values())
        return sorted(held, key=lambda gpu: gpu.pci_bus_id)

    def owner_of(self, gpu_uuid: str) -> str | None:
        """Node that the GPU belongs to, None for a GPU never seen."""
        record = self._gpus.get(gpu_uuid)
        return record.node_id if record else None

    def jobs(self) -> Mapping[str, str]:
        """The job of each GPU that has one, "KIND:ID"; the same object while nothing changes."""
        with self._lock:
            if self._jobs_shown is None:
                self._jobs_shown = dict(self._jobs)
            return self._jobs_shown

    def jobs_began(self) -> Mapping[str, float]:
        """When each job was first seen to run, epoch seconds, where that was since `fill`."""
        with self._lock:
            return dict(self._job_began)

    def job_at(self, gpu_uuid: str, at: float) -> str:
        """The job that ran on a GPU at `at` (epoch seconds), "" for none that is known.

        Agents look for jobs each JOB_LOOK_S: one that crashed may still be named, or no longer be,
        when what it left in the log is judged.
        """
        job = self._jobs.get(gpu_uuid, "")
        span = self._job_spans.get(gpu_uuid)
        if span is None or (job and at >= span.since - JOB_LOOK_S):
            return job
        return span.former if at <= span.since + JOB_LOOK_S else job

    def departed(self, node_id: str) -> int:
        """GPUs that were in a node and are in another one by now."""
        with self._lock:
            return len(self._departed.get(node_id, ()))

    def short_nodes(self) -> frozenset[str]:
        """Nodes that had GPUs which are in no inventory of theirs now, wherever those are."""
        with self._lock:
            gone = {gpu.node_id for gpu in self._gpus.values() if not gpu.present}
            return frozenset(gone | {node for node, gpus in self._departed.items() if gpus})

    def knows_boot(self, node_id: str, boot_id: str) -> bool:
        """Whether the boot was announced."""
        node = self._nodes.get(node_id)
        return node is not None and boot_id in node.boots

    def contact_is_news(self, node_id: str, agent_version: str, interval_s: float) -> bool:
        """Whether a batch's header says something new about its node, a new node included.

        Also where the node's claim to another node's GPU can be granted by now.
        """
        node = self._nodes.get(node_id)
        if node is None or (node.agent_version, node.interval_s) != (agent_version, interval_s):
            return True
        claim = self._claims.get(node_id)
        return claim is not None and not self.held_elsewhere(node_id, claim)

    def held_elsewhere(self, node_id: str, inventory: Inventory) -> list[str]:
        """GPUs of an inventory that another node, which is heard of, has in its own newest one."""
        return [
            gpu.gpu_uuid
            for gpu in inventory.gpus
            if (record := self._gpus.get(gpu.gpu_uuid)) is not None
            and record.node_id != node_id
            and record.present
            and self._is_live(record.node_id)
        ]

    def claim_of(self, node_id: str) -> Inventory | None:
        """The node's newest inventory, where it names GPUs that were left to another node."""
        return self._claims.get(node_id)

    def draft(self, node_id: str, at: float) -> Draft:
        """A draft of one node, made where it is new; `at` is the server's epoch seconds."""
        return Draft(self, node_id, at)

    def take_over(self, draft: Draft) -> None:
        """Replace records, after their commit."""
        with self._lock:
            self._nodes[draft.node.node_id] = draft.node
            for record in draft.gpus.values():
                self._put(record, draft.at)
            if draft.claim is None:
                self._claims.pop(draft.node.node_id, None)
            else:
                self._claims[draft.node.node_id] = draft.claim

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on."""
        with self._lock:
            self._nodes[new] = replace(self._nodes.pop(old), node_id=new)
            held = self._by_node.pop(old, {}).values()
            self._by_node[new] = {gpu.gpu_uuid: replace(gpu, node_id=new) for gpu in held}
            self._gpus.update(self._by_node[new])
            if old in self._claims:
                self._claims[new] = self._claims.pop(old)
            if old in self._departed:
                self._departed[new] = self._departed.pop(old)
            self._ownership += 1

    def _put(self, record: GpuRecord, at: float | None = None) -> None:
        before = self._gpus.get(record.gpu_uuid)
        if before is None or before.node_id != record.node_id:
            self._ownership += 1
        if before is not None and before.node_id != record.node_id:
            self._by_node[before.node_id].pop(record.gpu_uuid, None)
            self._departed.setdefault(before.node_id, set()).add(record.gpu_uuid)
            self._departed.get(record.node_id, set()).discard(record.gpu_uuid)
        self._note_job(record, at)
        self._gpus[record.gpu_uuid] = record
        self._by_node.setdefault(record.node_id, {})[record.gpu_uuid] = record

    def _note_job(self, record: GpuRecord, at: float | None) -> None:
        job = job_name(record.jobs)
        if job == self._jobs.get(record.gpu_uuid, ""):
            return
        self._jobs_shown = None
        former = self._jobs.get(record.gpu_uuid, "")
        self._count_job(former, job, at)
        if at is not None:
            self._job_spans[record.gpu_uuid] = _JobSpan(former, at)
        if job:
            self._jobs[record.gpu_uuid] = job
        else:
            del self._jobs[record.gpu_uuid]

    def _count_job(self, former: str, job: str, at: float | None) -> None:
        """A GPU that ran `former` runs `job` now; "" is none."""
        if former:
            self._job_gpus[former] -= 1
            if self._job_gpus[former] <= 0:
                del self._job_gpus[former]
                self._job_began.pop(former, None)
        if job:
            self._job_gpus[job] += 1
            if self._job_gpus[job] == 1 and at is not None:
                self._job_began[job] = at


class Draft:
    """One node's records while a transaction works on them.

    Attributes:
        node: The node as it will be.
        before: The node as it was, None for a new one.
        at: Epoch seconds.
        gpus: GPU records that change, by uuid.
        claim: The newest inventory, where another node keeps GPUs that it names.
    """

    def __init__(self, directory: Directory, node_id: str, at: float) -> None:
        self._directory = directory
        self.at = at
        self.before = directory.node(node_id)
        self.node = self.before or NodeRecord(node_id=node_id, first_seen_at=at)
        self.gpus: dict[str, GpuRecord] = {}
        self.claim = directory.claim_of(node_id)

    def resolve(self, event: Event) -> EntityRef | None:
        """The entity that an event speaks about; None for a GPU that this node does not have."""
        node_id = self.node.node_id
        match event.entity_kind:
            case EntityKind.NIC | EntityKind.DISK | EntityKind.MOUNT if event.entity:
                return EntityRef(event.entity_kind, f"{node_id}/{event.entity}", node_id)
            case EntityKind.GPU if event.entity:
                return self._own_gpu(event.entity)
        if event.pci_bus_id is not None:
            record = gpu_in_slot(self._known().values(), event.pci_bus_id)
            if record is not None:
                return EntityRef(EntityKind.GPU, record.gpu_uuid, node_id)
        if event.entity_kind is EntityKind.GPU:
            return None
        return EntityRef(EntityKind.NODE, node_id, node_id)

    def note_contact(self, agent_version: str, interval_s: float) -> None:
        """Take the header of a batch over."""
        self.node = replace(self.node, agent_version=agent_version, interval_s=interval_s)
        if self.claim is not None:
            self._note_inventory(self.claim)

    def note_event(self, event: Event, boot_id: str) -> None:
        """Take an inventory or a boot over; other events change nothing here."""
        if event.kind is EventKind.NODE_BOOT:
            self.node = apply_boot(self.node, boot_id)
        elif event.kind is EventKind.INVENTORY and event.inventory is not None:
            self._note_inventory(event.inventory)

    def adopt(self) -> None:
        """Make the draft the truth, after its commit."""
        self._directory.take_over(self)

    def gpus_here(self) -> tuple[list[GpuRecord], list[GpuRecord]]:
        """GPUs of the node before the draft, and with what it changes."""
        before = self._directory.gpus_of(self.node.node_id)
        after = [gpu for gpu in self._known().values() if gpu.node_id == self.node.node_id]
        return before, after

    def note_claimed_twice(self, gpu_uuids: list[str]) -> None:
        """GPUs that another node keeps are named by this one too, for the first time."""

    def _note_inventory(self, inventory: Inventory) -> None:
        node_id = self.node.node_id
        elsewhere = self._directory.held_elsewhere(node_id, inventory)
        if elsewhere and self.claim is None:
            self.note_claimed_twice(elsewhere)
        self.claim = inventory if elsewhere else None
        known = dict(self._known())
        for gpu in inventory.gpus:
            if (record := self._directory.gpu(gpu.gpu_uuid)) is not None:
                known.setdefault(gpu.gpu_uuid, record)
        self.gpus |= place_gpus(node_id, inventory, known, elsewhere, self.at)
        here = sum(record.node_id == node_id for record in (known | self.gpus).values())
        self.node = apply_inventory(self.node, inventory, self.at, here)

    def _own_gpu(self, gpu_uuid: str) -> EntityRef | None:
        if gpu_uuid not in self.gpus:
            owner = self._directory.owner_of(gpu_uuid)
            if owner not in (None, self.node.node_id):
                return None
        return EntityRef(EntityKind.GPU, gpu_uuid, self.node.node_id)

    def _known(self) -> Mapping[str, GpuRecord]:
        held = {gpu.gpu_uuid: gpu for gpu in self._directory.gpus_of(self.node.node_id)}
        return held | self.gpus
