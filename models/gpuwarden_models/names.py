"""Names of recordings, which are those of dcgm-exporter and node_exporter, against our metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpuwarden_wire.metrics import EntityKind, Metric
from gpuwarden_wire.registry import METRICS


@dataclass(frozen=True, slots=True)
class RecordedName:
    """How a recording names a metric, and in which unit.

    Attributes:
        metric: Our name.
        column: Column in a recording.
        factor: Recorded number = our number x factor.
    """

    metric: str
    column: str
    factor: float = 1.0


# Units of dcgm-exporter where they differ from ours: MHz, mJ, %, MiB, and nanoseconds for the
# violation times (NVIDIA DCGM field identifiers reference).
_DCGM_FACTORS: Mapping[str, float] = MappingProxyType(
    {
        "gpu_energy_joules_total": 1e3,
        "gpu_sm_clock_hertz": 1e-6,
        "gpu_memory_clock_hertz": 1e-6,
        "gpu_sm_clock_max_hertz": 1e-6,
        "gpu_utilization_ratio": 100.0,
        "gpu_memory_utilization_ratio": 100.0,
        "gpu_memory_used_bytes": 2.0**-20,
        "gpu_thermal_slowdown_seconds_total": 1e9,
    }
)

_NODE_EXPORTER: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "node_load1": ("node_load1", 1.0),
        "node_memory_available_bytes": ("node_memory_MemAvailable_bytes", 1.0),
        "node_processes_running": ("node_procs_running", 1.0),
        "node_processes_blocked": ("node_procs_blocked", 1.0),
        "node_interrupts_total": ("node_intr_total", 1.0),
        "node_context_switches_total": ("node_context_switches_total", 1.0),
        "node_pages_out_bytes_total": ("node_vmstat_pgpgout", 2.0**-10),  # KiB
        "node_pressure_cpu_seconds_total": ("node_pressure_cpu_waiting_seconds_total", 1.0),
        "node_pressure_io_seconds_total": ("node_pressure_io_waiting_seconds_total", 1.0),
        "node_pressure_io_full_seconds_total": ("node_pressure_io_stalled_seconds_total", 1.0),
        "node_pressure_memory_seconds_total": ("node_pressure_memory_waiting_seconds_total", 1.0),
        "node_pressure_memory_full_seconds_total": (
            "node_pressure_memory_stalled_seconds_total",
            1.0,
        ),
        "nic_port_state": ("node_infiniband_state_id", 1.0),
        "nic_port_physical_state": ("node_infiniband_physical_state_id", 1.0),
        "nic_rate_bytes_per_second": ("node_infiniband_rate_bytes_per_second", 1.0),
        "nic_received_bytes_total": ("node_infiniband_port_data_received_bytes_total", 1.0),
        "nic_transmitted_bytes_total": ("node_infiniband_port_data_transmitted_bytes_total", 1.0),
        "nic_link_downed_total": ("node_infiniband_link_downed_total", 1.0),
        "nic_link_error_recovery_total": ("node_infiniband_link_error_recovery_total", 1.0),
        "nic_symbol_errors_total": ("node_infiniband_symbol_error_total", 1.0),
        "nic_receive_errors_total": ("node_infiniband_port_errors_received_total", 1.0),
        "nic_transmit_discards_total": ("node_infiniband_port_discards_transmitted_total", 1.0),
        "nic_transmit_wait_total": ("node_infiniband_port_transmit_wait_total", 1.0),
        "nic_carrier": ("node_network_carrier", 1.0),
        "nic_carrier_changes_total": ("node_network_carrier_changes_total", 1.0),
        "disk_reads_completed_total": ("node_disk_reads_completed_total", 1.0),
        "disk_read_bytes_total": ("node_disk_read_bytes_total", 1.0),
        "disk_read_seconds_total": ("node_disk_read_time_seconds_total", 1.0),
        "disk_writes_completed_total": ("node_disk_writes_completed_total", 1.0),
        "disk_written_bytes_total": ("node_disk_written_bytes_total", 1.0),
        "disk_write_seconds_total": ("node_disk_write_time_seconds_total", 1.0),
        "disk_in_flight": ("node_disk_io_now", 1.0),
        "disk_io_seconds_total": ("node_disk_io_time_seconds_total", 1.0),
        "disk_io_weighted_seconds_total": ("node_disk_io_time_weighted_seconds_total", 1.0),
    }
)


def _recorded(metrics: Iterable[Metric]) -> Iterable[RecordedName]:
    for metric in metrics:
        if metric.dcgm_name:
            factor = _DCGM_FACTORS.get(metric.name, 1.0)
            yield RecordedName(metric.name, metric.dcgm_name, factor)
        elif metric.name in _NODE_EXPORTER:
            column, factor = _NODE_EXPORTER[metric.name]
            yield RecordedName(metric.name, column, factor)
        else:
            yield RecordedName(metric.name, f"gpuwarden_{metric.name}")


RECORDED: Mapping[str, RecordedName] = MappingProxyType(
    {name.metric: name for name in _recorded(METRICS)}
)
"""Recorded name by our metric; `gpuwarden_` and our name where neither exporter has it."""

KEY_COLUMNS: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
    {
        EntityKind.GPU: ("node", "gpu_uuid"),
        EntityKind.NODE: ("node",),
        EntityKind.NIC: ("node", "device", "port"),
        EntityKind.DISK: ("node", "device"),
        EntityKind.MOUNT: ("node", "mount"),
    }
)
"""Columns that name the entity in each kind of Parquet file."""
