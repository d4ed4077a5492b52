"""A simulated window as it comes in through the doors: by agents, or as Prometheus scrapes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.window import Floats, Strip, Window
from gpuwarden_wire.batches import Table, pack_table
from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.schema import Schema, schema_for
from tests.builders.remote_write import Sampled

READ_S = 30.0
"""When in its minute each reading is taken."""
_NODE_EXPORTER: Mapping[str, str] = {
    "node_load1": "node_load1",
    "node_processes_running": "node_procs_running",
    "node_processes_blocked": "node_procs_blocked",
    "node_interrupts_total": "node_intr_total",
    "node_context_switches_total": "node_context_switches_total",
    "node_pressure_cpu_seconds_total": "node_pressure_cpu_waiting_seconds_total",
    "node_pressure_io_seconds_total": "node_pressure_io_waiting_seconds_total",
    "node_pressure_memory_seconds_total": "node_pressure_memory_waiting_seconds_total",
    "disk_reads_completed_total": "node_disk_reads_completed_total",
    "disk_read_bytes_total": "node_disk_read_bytes_total",
    "disk_read_seconds_total": "node_disk_read_time_seconds_total",
    "disk_writes_completed_total": "node_disk_writes_completed_total",
    "disk_written_bytes_total": "node_disk_written_bytes_total",
    "disk_write_seconds_total": "node_disk_write_time_seconds_total",
    "disk_io_seconds_total": "node_disk_io_time_seconds_total",
    "nic_transmitted_bytes_total": "node_infiniband_port_data_transmitted_bytes_total",
    "nic_transmit_wait_total": "node_infiniband_port_transmit_wait_total",
    "nic_symbol_errors_total": "node_infiniband_symbol_error_total",
    "nic_receive_errors_total": "node_infiniband_port_errors_received_total",
    "nic_port_state": "node_infiniband_state_id",
}
_DCGM: Mapping[str, tuple[str, float]] = {
    "gpu_utilization_ratio": ("DCGM_FI_DEV_GPU_UTIL", 100.0),
    "gpu_power_watts": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "gpu_sm_clock_hertz": ("DCGM_FI_DEV_SM_CLOCK", 1e-6),
    "gpu_memory_used_bytes": ("DCGM_FI_DEV_FB_USED", 1 / 1048576),
}
_MOUNTSTATS: Mapping[str, str] = {
    "mount_read_bytes_total": "node_mountstats_nfs_total_read_bytes_total",
    "mount_written_bytes_total": "node_mountstats_nfs_total_write_bytes_total",
}
_OPERATIONS: Mapping[str, str] = {
    "mount_operations_total": "requests_total",
    "mount_queue_seconds_total": "queue_time_seconds_total",
    "mount_round_trip_seconds_total": "response_time_seconds_total",
    "mount_execute_seconds_total": "request_time_seconds_total",
    "mount_major_timeouts_total": "major_timeouts_total",
}
_SHARES: Mapping[str, float] = {"WRITE": 0.75, "READ": 0.25}


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a window.

    Attributes:
        window: All nodes.
        row: Of the node.
        begin: Epoch seconds of the window's first minute, as it is told.
    """

    window: Window
    row: int
    begin: float

    @property
    def name(self) -> str:
        """Of the node."""
        return self.window.nodes[self.row]

    def at(self, minute: int) -> float:
        """When the readings of a minute were taken."""
        return self.begin + 60.0 * minute + READ_S

    def readings(self, kind: EntityKind, minute: int) -> dict[str, dict[str, float]]:
        """By entity, as the node names it, and metric; counters as they stand."""
        strip = self.window.strips[kind]
        rows = np.flatnonzero(strip.node == self.row).tolist()
        return {
            strip.keys[row].removeprefix(f"{self.name}/"): _standing(strip, row, minute)
            for row in rows
        }

    def tables(self) -> Iterator[tuple[Table, Schema]]:
        """All that an agent tells, minute by minute."""
        for minute in range(self.window.steps):
            for kind, strip in self.window.strips.items():
                schema = schema_for(kind, tuple(sorted(strip.values)))
                rows = {
                    "" if kind is EntityKind.NODE else entity: tuple(
                        values[name] for name in schema.names
                    )
                    for entity, values in self.readings(kind, minute).items()
                }
                yield pack_table(schema, self.at(minute), rows), schema

    def scrape(self, minute: int) -> list[Sampled]:
        """What Prometheus has of node_exporter and dcgm-exporter after a scrape."""
        return [
            ({"__name__": name, **labels, "node": self.name}, [(self.at(minute), value)])
            for name, labels, value in (*self._node_exporter(minute), *self._dcgm(minute))
        ]

    def _node_exporter(self, minute: int) -> Iterator[tuple[str, dict[str, str], float]]:
        target = {"job": "node", "instance": f"{self.name}:9100"}
        for kind in (EntityKind.NODE, EntityKind.DISK, EntityKind.NIC):
            for entity, values in self.readings(kind, minute).items():
                labels = _labels(kind, entity)
                for name, value in values.items():
                    if name in _NODE_EXPORTER:
                        yield _NODE_EXPORTER[name], target | labels, value
        for point, values in self.readings(EntityKind.MOUNT, minute).items():
            yield from _mountstats(point, values, target)

    def _dcgm(self, minute: int) -> Iterator[tuple[str, dict[str, str], float]]:
        target = {"job": "dcgm", "instance": f"{self.name}:9400"}
        for index, values in enumerate(self.readings(EntityKind.GPU, minute).values()):
            uuid = f"GPU-{self.row:08x}-2461-8638-2d09-caf83c2e{index:04x}"
            gpu = {
                "UUID": uuid,
                "gpu": str(index),
                "pci_bus_id": f"00000000:{0x10 + index:02X}:00.0",
            }
            for name, (field, factor) in _DCGM.items():
                yield field, target | gpu, values[name] * factor


def _standing(strip: Strip, row: int, minute: int) -> dict[str, float]:
    found = {}
    for name, values in strip.values.items():
        if METRIC_BY_NAME[name].kind is MetricKind.COUNTER:
            found[name] = 1e9 + float(np.nansum(values[row, : minute + 1])) * 60.0
        else:
            found[name] = _latest(values[row], minute)
    return found


def _latest(values: Floats, minute: int) -> float:
    """What was not read shows as it was before."""
    read = values[: minute + 1][np.isfinite(values[: minute + 1])]
    return float(read[-1]) if read.size else 0.0


def _labels(kind: EntityKind, entity: str) -> dict[str, str]:
    if kind is EntityKind.NIC:
        device, _, port = entity.partition("/")
        return {"device": device, "port": port}
    return {"device": entity} if kind is EntityKind.DISK else {}


def _mountstats(
    point: str, values: Mapping[str, float], target: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str], float]]:
    export = f"fs1.example.org:/export{point}"
    mount = {**target, "export": export, "protocol": "tcp", "mountaddr": "10.0.0.9"}
    mounted = {**target, "device": export, "mountpoint": point, "fstype": "nfs4"}
    yield "node_filesystem_size_bytes", mounted, 1e15
    for name, series in _MOUNTSTATS.items():
        yield series, mount, values[name]
    for operation, share in _SHARES.items():
        own = mount | {"operation": operation}
        for name, series in _OPERATIONS.items():
            yield f"node_mountstats_nfs_operations_{series}", own, share * values[name]
        sent = share * (values["mount_operations_total"] + values["mount_retransmits_total"])
        yield "node_mountstats_nfs_operations_transmissions_total", own, sent
