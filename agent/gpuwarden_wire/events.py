"""Events: facts that must not be lost, each with a natural id."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gpuwarden_wire.metrics import EntityKind

Attribute = bool | int | float | str | list[bool | int | float | str | None] | None
"""Value of an attribute. Flat, for the decoder's sake: 8 MiB of empty lists inside a list would
become 600 MiB of objects."""


class EventKind(StrEnum):
    """What happened. The fields that each kind fills are in docs/wire.md."""

    KERNEL_LOG = "kernel_log"  # a recognised kernel line
    NVML_XID = "nvml_xid"  # an XID event delivered by NVML
    GPU_LOST = "gpu_lost"  # NVML says lost, or a known GPU is gone; attributes.probes counts probes
    GPU_BACK = "gpu_back"  # a GPU that was lost answers again
    INVENTORY = "inventory"  # attributes.gpus, .nics, .disks: what the node has; sent on change
    NODE_BOOT = "node_boot"  # first contact in a boot
    COLLECTOR_TROUBLE = "collector_trouble"  # our own plumbing: never a hardware verdict
    COLLECTOR_RECOVERED = "collector_recovered"
    DRIVER_STUCK = "driver_stuck"  # an NVML call in flight for more than 30 s, child alive
    DRIVER_RESPONDS = "driver_responds"
    CHECK_PASSED = "check_passed"  # evidence of recovery for one entity
    CHECK_FAILED = "check_failed"
    CLOUD_EVENTS = "cloud_events"  # all that the cloud announces for the node, at a change
    JOB_ENDED = "job_ended"  # a job that ran on the node; told by a scheduler, not by agents
    JOB_LOSS = "job_loss"  # a loss that is not finite, or jumps; told by a training process


class Backlog(StrEnum):
    """How late a line was read.

    A line that was appended since the agent's saved position is none, however long the agent was
    down: it is news, and acted on as such.
    """

    NONE = "none"
    FIRST_LOOK = "first_look"  # of this boot, there before the agent ever looked: known already?
    OLDER_BOOT = "older_boot"  # from before the present boot: history


class GpuIdentity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU of a node.

    Attributes:
        gpu_uuid: "GPU-…"; identity of the GPU.
        serial: Board serial: the part through repairs, "" where the driver gives none.
        pci_bus_id: Lower-case dddd:bb:dd.f; joins kernel lines.
        index: Driver's index, display only.
        model: NVIDIA's product name.
        driver_version: Kernel driver.
        vbios_version: "" where unknown.
        nics: Ports under the lowest PCI bridge that the GPU shares with any: its rails.
    """

    gpu_uuid: str
    pci_bus_id: str
    serial: str = ""
    index: int | None = None
    model: str = ""
    driver_version: str = ""
    vbios_version: str = ""
    nics: tuple[str, ...] = ()


class JobKind(StrEnum):
    """Who gave a job its id."""

    SLURM = "slurm"  # job id
    KUBERNETES = "kubernetes"  # pod uid
    TORCHRUN = "torchrun"  # rendezvous id: the same on all nodes of a job


class GpuJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job that runs on one GPU; a GPU may have several, of several kinds.

    Attributes:
        gpu_uuid: The GPU.
        kind: Who gave the id.
        job_id: The id, and nothing else of the job.
    """

    gpu_uuid: str
    kind: JobKind
    job_id: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a node has; sent whole at start and on every change.

    Attributes:
        gpus: GPUs that the driver knows now.
        nics: "device/port" of InfiniBand ports and names of physical net interfaces.
        disks: Whole block devices.
        gpus_expected: Expected number of GPUs, None where unknown.
        gpus_expected_set: An operator set that number: it holds against anything that was seen.
        gpus_elsewhere: PCI bus ids of GPUs that were given to another driver on purpose (vfio-pci):
            there, not this node's, and not among those expected.
        labels: Free facts: kernel release, product name, pool, rack.
        jobs: What runs on the GPUs; a GPU without a line has no job that is known.
    """

    gpus: tuple[GpuIdentity, ...] = ()
    nics: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    gpus_expected: int | None = None
    gpus_expected_set: bool = False
    gpus_elsewhere: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    jobs: tuple[GpuJob, ...] = ()


class Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fact about one entity.

    Attributes:
        id: Natural id, unique over the fleet for ever: "kmsg:BOOT:SEQ", "file:DEV:INODE:OFFSET",
            "nvml:BOOT:GPU_UUID:COUNTER", else "KIND:BOOT:…". The same fact has the same id on
            replay.
        kind: What happened.
        observed_at: Agent's UTC, epoch seconds; informs, never orders.
        entity_kind: Kind of entity it speaks about; NODE where it is not narrower.
        entity: gpu_uuid, nic "device/port" or net interface, disk name, mount point; "" for the
            node itself or a GPU known by `pci_bus_id` only (the server joins it).
        count: Lines merged within 5 s into this event, at least 1: identical ones, and in a storm
            those of one kind; `attributes.differing` of them had other numbers than `text`.
        family: Kernel-log family (`gpuwarden_kernel_log.Family`), "" for other kinds.
        xid: NVIDIA XID code.
        sxid: NVSwitch SXid code.
        pci_bus_id: Lower-case dddd:bb:dd.f.
        pid: Process that the line names.
        process: Its name.
        severity: info, warning, error or critical as the agent saw it; the server's catalogue
            decides.
        device: NIC, block device or server that the line names.
        text: The message without its wrapper, at most 1,000 characters.
        backlog: Whether it was news when the agent read it; see `Backlog`.
        inventory: For INVENTORY.
        attributes: Further facts of this kind, flat.
    """

    id: str
    kind: EventKind
    observed_at: float
    entity_kind: EntityKind = EntityKind.NODE
    entity: str = ""
    count: int = 1
    family: str = ""
    xid: int | None = None
    sxid: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process: str | None = None
    severity: str = "info"
    device: str | None = None
    text: str = ""
    backlog: Backlog = Backlog.NONE
    inventory: Inventory | None = None
    attributes: Mapping[str, Attribute] = {}
