"""A node of a story: what sits in it, what it reads, and how that changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.batches import Stream, Table
from gpuwarden_wire.events import (
    GpuIdentity,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading

H100 = "NVIDIA H100 80GB HBM3"
DRIVER = "550.127.08"

Rows = dict[str, dict[str, Reading]]
"""Readings by metric, by the entity's name on the wire."""

BUSY_GPU: Mapping[str, Reading] = {
    "gpu_present": 1.0,
    "gpu_temperature_celsius": 58.0,
    "gpu_memory_temperature_celsius": 70.0,
    "gpu_slowdown_temperature_celsius": 90.0,
    "gpu_power_watts": 640.0,
    "gpu_power_limit_watts": 700.0,
    "gpu_sm_clock_hertz": 1.7e9,
    "gpu_sm_clock_max_hertz": 1.98e9,
    "gpu_utilization_ratio": 0.98,
    "gpu_memory_used_bytes": 7.0e10,
    "gpu_memory_total_bytes": 8.5e10,
    "gpu_ecc_corrected_volatile_total": 0.0,
    "gpu_ecc_uncorrected_volatile_total": 0.0,
    "gpu_rows_remapped_correctable_total": 0.0,
    "gpu_rows_remapped_uncorrectable_total": 0.0,
    "gpu_row_remap_pending": 0.0,
    "gpu_row_remap_failure": 0.0,
    "gpu_recovery_action": 0.0,
    "gpu_pcie_replay_total": 0.0,
    "gpu_pcie_link_generation": 5.0,
    "gpu_pcie_link_generation_max": 5.0,
    "gpu_pcie_link_width": 16.0,
    "gpu_pcie_link_width_max": 16.0,
    "gpu_nvlinks_active": 18.0,
    "gpu_nvlinks_inactive": 0.0,
    "gpu_probe_seconds": 0.012,
}
SOUND_NODE: Mapping[str, Reading] = {
    "node_uptime_seconds": 9.0e5,
    "node_nvml_call_age_seconds": 0.0,
    "node_nvml_poll_seconds": 0.11,
    "node_interrupts_total": 0.0,
    "node_processes_running": 24.0,
    "node_load1": 24.0,
    "node_driver_loaded": 1.0,
    "node_fabric_manager_running": 1.0,
    "node_nvswitches": 4.0,
    "node_clock_synchronised": 1.0,
}
SOUND_PORT: Mapping[str, Reading] = {
    "nic_port_state": 4.0,
    "nic_port_physical_state": 5.0,
    "nic_rate_bytes_per_second": 5.0e10,
    "nic_received_bytes_total": 0.0,
    "nic_transmitted_bytes_total": 0.0,
    "nic_link_downed_total": 0.0,
    "nic_symbol_errors_total": 0.0,
}


@dataclass
class Node:
    """One node as its agent sees it.

    Attributes:
        name: Node id.
        gpus: What sits in it, in order of the slots.
        readings: What it sends, by kind, entity on the wire and metric; change it at will.
        growth: Counters that grow by so much a second, by the same names.
        jobs: Job by gpu_uuid.
        boot_id: Present boot.
        sends: False while the node, or its agent, is gone.
        skew_s: How far its clock is ahead.
        labels: What its inventory says of it.
    """

    name: str
    gpus: list[GpuIdentity]
    readings: dict[EntityKind, Rows]
    growth: dict[EntityKind, dict[str, dict[str, float]]] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    boot_id: str = "boot-1"
    spool_id: str = ""
    sends: bool = True
    skew_s: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    expected: int | None = None
    seqs: dict[Stream, count[int]] = field(default_factory=dict)
    lines: count[int] = field(default_factory=lambda: count(1))
    packed: dict[EntityKind, tuple[Rows, Table]] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def gpu(self, number: int) -> EntityRef:
        """The GPU in a slot."""
        return EntityRef(EntityKind.GPU, self.gpus[number].gpu_uuid, self.name)

    @property
    def ref(self) -> EntityRef:
        """The node itself."""
        return EntityRef(EntityKind.NODE, self.name, self.name)

    def part(self, kind: EntityKind, entity: str) -> EntityRef:
        """A NIC, disk or mount."""
        return EntityRef(kind, f"{self.name}/{entity}", self.name)

    def set_gpu(self, number: int, **values: Reading) -> None:
        """Change what a GPU reads."""
        self.readings[EntityKind.GPU][self.gpus[number].gpu_uuid].update(values)

    def set_gpus(self, **values: Reading) -> None:
        """Change what all GPUs read."""
        for rows in self.readings[EntityKind.GPU].values():
            rows.update(values)

    def set(self, kind: EntityKind, entity: str, **values: Reading) -> None:
        """Change what a part reads; "" is the node itself."""
        self.readings.setdefault(kind, {}).setdefault(entity, {}).update(values)

    def grow(self, kind: EntityKind, entity: str, **a_second: float) -> None:
        """Let counters grow."""
        self.growth.setdefault(kind, {}).setdefault(entity, {}).update(a_second)

    def grow_gpu(self, number: int, **a_second: float) -> None:
        """Let counters of a GPU grow."""
        self.grow(EntityKind.GPU, self.gpus[number].gpu_uuid, **a_second)

    def pass_time(self, seconds: float) -> None:
        """Counters and the uptime go on."""
        rows = self.readings[EntityKind.NODE][""]
        if isinstance(up := rows.get("node_uptime_seconds"), float):
            rows["node_uptime_seconds"] = up + seconds
        for kind, entities in self.growth.items():
            for entity, rates in entities.items():
                held = self.readings[kind].get(entity)
                for metric, rate in rates.items():
                    if held is not None and isinstance(now := held.get(metric), float):
                        held[metric] = now + rate * seconds


def make_gpu(
    node: str, number: int, model: str = H100, *, serial: str | None = None
) -> GpuIdentity:
    """The GPU in a slot; another serial makes another part."""
    own = serial or f"{node[1:]}{number}"
    return GpuIdentity(
        gpu_uuid=f"GPU-{node}-{number}" if serial is None else f"GPU-{serial}",
        pci_bus_id=f"0000:{number * 16 + 0x0A:02x}:00.0",
        serial=own,
        index=number,
        model=model,
        driver_version=DRIVER,
    )


def make_node(name: str, gpus: int, model: str) -> Node:
    has = [make_gpu(name, number, model) for number in range(gpus)]
    node_row = {
        "node_gpus_visible": float(gpus),
        "node_gpus_on_pci": float(gpus),
        "node_gpus_expected": float(gpus),
        **SOUND_NODE,
    }
    return Node(
        name,
        has,
        {
            EntityKind.GPU: {gpu.gpu_uuid: dict(BUSY_GPU) for gpu in has},
            EntityKind.NODE: {"": node_row},
            EntityKind.NIC: {"mlx5_0/1": dict(SOUND_PORT)},
        },
        growth={
            EntityKind.NODE: {"": {"node_interrupts_total": 9000.0}},
            EntityKind.NIC: {
                "mlx5_0/1": {
                    "nic_received_bytes_total": 2.0e10,
                    "nic_transmitted_bytes_total": 2.0e10,
                }
            },
        },
        expected=gpus,
    )
