"""Nodes and GPUs as values, and how an inventory changes them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuwarden_kernel_log.pci import canonical_pci
from gpuwarden_verdict.context import Shortfall
from gpuwarden_wire.events import GpuIdentity, Inventory


@dataclass(frozen=True, slots=True)
class GpuRecord:
    """A GPU that some node had or has.

    Attributes:
        gpu_uuid: Identity.
        node_id: Node that it was last seen in.
        serial: The part, "" unknown.
        pci_bus_id: Last known slot, dddd:bb:dd.f.
        gpu_index: Driver's index, display only.
        model: Product name.
        driver_version: Kernel driver.
        vbios_version: "" unknown.
        nics: Near NICs.
        present: Named by the node's newest inventory; a GPU off the bus is not.
        first_seen_at: Epoch seconds.
        last_seen_at: Newest inventory that named it, epoch seconds.
        jobs: (kind, id) of each job that runs on it, as of that inventory.
    """

    gpu_uuid: str
    node_id: str
    serial: str
    pci_bus_id: str
    gpu_index: int | None
    model: str
    driver_version: str
    vbios_version: str
    nics: tuple[str, ...]
    present: bool
    first_seen_at: float
    last_seen_at: float
    jobs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as its inventory and boots tell.

    Attributes:
        node_id: Name.
        first_seen_at: Epoch seconds.
        boot_id: Newest boot, "" before the first was announced.
        agent_version: Of the latest batch that brought something new.
        interval_s: Telemetry cadence, 0 unknown.
        gpus_expected: GPUs that should be there: the most that the agent told or that were seen
            here together, save what an operator set; None unknown.
        gpus_expected_set: An operator set it, as the newest inventory of this process says.
        gpus_elsewhere: Slots whose GPUs another driver holds on purpose, as the newest inventory of
            this process says.
        nics: "device/port" and interface names.
        disks: Whole block devices.
        labels: Free facts.
        inventory_at: Epoch seconds of the last inventory, None never.
        boots: All boots announced so far.
    """

    node_id: str
    first_seen_at: float
    boot_id: str = ""
    agent_version: str = ""
    interval_s: float = 0.0
    gpus_expected: int | None = None
    gpus_expected_set: bool = False
    gpus_elsewhere: tuple[str, ...] = ()
    nics: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    inventory_at: float | None = None
    boots: frozenset[str] = frozenset()


def apply_inventory(node: NodeRecord, inventory: Inventory, at: float, known: int) -> NodeRecord:
    """The node after `inventory`; its GPUs are `place_gpus`'s.

    Args:
        node: Before it.
        inventory: What the node has now.
        at: Epoch seconds.
        known: GPUs that were last seen in this node, those in no inventory now included.
    """
    return replace(
        node,
        gpus_expected=_expected(node.gpus_expected, inventory, known),
        gpus_expected_set=inventory.gpus_expected_set,
        gpus_elsewhere=tuple(canonical_pci(one) or one for one in inventory.gpus_elsewhere),
        nics=inventory.nics,
        disks=inventory.disks,
        labels=inventory.labels,
        inventory_at=at,
    )


def _expected(before: int | None, inventory: Inventory, known: int) -> int | None:
    """What is expected from now on.

    An agent whose memory was lost counts what it sees, so that after a reboot with one GPU fewer
    all would seem well. The most that was here together holds, as far as those GPUs are known and
    neither in another node nor with another driver.
    """
    if inventory.gpus_expected_set:
        return inventory.gpus_expected
    remembered = min(before or 0, known) - len(inventory.gpus_elsewhere)
    told = inventory.gpus_expected
    most = max(told or 0, len(inventory.gpus), remembered)
    return most if most > 0 else told


def expected_of(node: NodeRecord, present: int, shortfall: Shortfall) -> int | None:
    """What a node should show of GPUs, those that are known to be gone for good left out."""
    if node.gpus_expected is None or node.gpus_expected_set:
        return node.gpus_expected
    unnamed = max(0, node.gpus_expected - present - len(shortfall.absent))
    return node.gpus_expected - min(unnamed, shortfall.left)


def shortfall_of(
    node: NodeRecord,
    gpus: Iterable[GpuRecord],
    moved: int,
    repaired_at: Mapping[str, float],
) -> Shortfall:
    """What a node lacks.

    Args:
        node: The node.
        gpus: GPUs last seen in it.
        moved: GPUs that were here and were seen in another node since.
        repaired_at: When a passed check ended a GPU's repair, epoch seconds by uuid.
    """
    gone = [gpu for gpu in gpus if not gpu.present]
    away = {gpu.gpu_uuid for gpu in gone if gpu.pci_bus_id in node.gpus_elsewhere}
    taken_out = {g.gpu_uuid for g in gone if repaired_at.get(g.gpu_uuid, 0.0) > g.last_seen_at}
    latest_first = sorted(gone, key=lambda gpu: (-gpu.last_seen_at, gpu.pci_bus_id))
    uuids = [gpu.gpu_uuid for gpu in latest_first]
    return Shortfall(
        absent=tuple(uuid for uuid in uuids if uuid not in away | taken_out),
        released=tuple(uuid for uuid in uuids if uuid in away | taken_out),
        left=moved + len(taken_out - away),
    )


def apply_boot(node: NodeRecord, boot_id: str) -> NodeRecord:
    """The node after `boot_id` was announced; a boot known before changes nothing."""
    if not boot_id or boot_id in node.boots:
        return node
    return replace(node, boot_id=boot_id, boots=node.boots | {boot_id})


def place_gpus(
    node_id: str,
    inventory: Inventory,
    known: Mapping[str, GpuRecord],
    elsewhere: Iterable[str],
    at: float,
) -> dict[str, GpuRecord]:
    """The GPU records that an inventory changes.

    Args:
        node_id: Node that sent it.
        inventory: What the node has now.
        known: Records by uuid: of this node, and of GPUs that the inventory names.
        elsewhere: Named GPUs that another, live node still has: they stay there.
        at: Epoch seconds.

    Returns:
        New records by uuid; GPUs of this node that are no longer named are kept, not present, at
        their last slot, so that a kernel line about a lost GPU still finds it.
    """
    held = set(elsewhere)
    named = {gpu.gpu_uuid: gpu for gpu in inventory.gpus if gpu.gpu_uuid not in held}
    changed = {
        uuid: replace(_seen(known.get(uuid), gpu, node_id, at), jobs=_jobs_on(uuid, inventory))
        for uuid, gpu in named.items()
    }
    for uuid, record in known.items():
        if record.node_id == node_id and uuid not in named and record.present:
            changed[uuid] = replace(record, present=False, jobs=())
    return changed


def _jobs_on(gpu_uuid: str, inventory: Inventory) -> tuple[tuple[str, str], ...]:
    return tuple((job.kind.value, job.job_id) for job in inventory.jobs if job.gpu_uuid == gpu_uuid)


def gpu_in_slot(records: Iterable[GpuRecord], pci_bus_id: str) -> GpuRecord | None:
    """The GPU at an address, among the records of one node.

    A present GPU wins over one that left; of several that left, the latest.
    """
    address = canonical_pci(pci_bus_id)
    there = [record for record in records if address and record.pci_bus_id == address]
    return max(there, key=lambda record: (record.present, record.last_seen_at), default=None)


def _seen(before: GpuRecord | None, gpu: GpuIdentity, node_id: str, at: float) -> GpuRecord:
    return GpuRecord(
        gpu_uuid=gpu.gpu_uuid,
        node_id=node_id,
        serial=gpu.serial or (before.serial if before else ""),
        pci_bus_id=canonical_pci(gpu.pci_bus_id) or gpu.pci_bus_id.lower(),
        gpu_index=gpu.index,
        model=gpu.model,
        driver_version=gpu.driver_version,
        vbios_version=gpu.vbios_version,
        nics=gpu.nics,
        present=True,
        first_seen_at=before.first_seen_at if before else at,
        last_seen_at=at,
    )
