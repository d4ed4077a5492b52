"""The metrics that the simulator makes; the registry has more, which real agents read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema, schema_for

_SIMULATED: Mapping[EntityKind, tuple[str, ...]] = MappingProxyType(
    {
        EntityKind.GPU: (
            "gpu_present",
            "gpu_temperature_celsius",
            "gpu_memory_temperature_celsius",
            "gpu_slowdown_temperature_celsius",
            "gpu_power_watts",
            "gpu_power_limit_watts",
            "gpu_energy_joules_total",
            "gpu_sm_clock_hertz",
            "gpu_memory_clock_hertz",
            "gpu_sm_clock_max_hertz",
            "gpu_clock_event_reasons",
            "gpu_thermal_slowdown_seconds_total",
            "gpu_power_brake_seconds_total",
            "gpu_utilization_ratio",
            "gpu_memory_utilization_ratio",
            "gpu_memory_used_bytes",
            "gpu_memory_total_bytes",
            "gpu_ecc_corrected_volatile_total",
            "gpu_ecc_uncorrected_volatile_total",
            "gpu_ecc_corrected_aggregate_total",
            "gpu_ecc_uncorrected_aggregate_total",
            "gpu_rows_remapped_correctable_total",
            "gpu_rows_remapped_uncorrectable_total",
            "gpu_row_remap_pending",
            "gpu_row_remap_failure",
            "gpu_recovery_action",
            "gpu_pcie_replay_total",
            "gpu_pcie_link_generation",
            "gpu_pcie_link_generation_max",
            "gpu_pcie_link_width",
            "gpu_pcie_link_width_max",
            "gpu_nvlinks_active",
            "gpu_nvlinks_inactive",
            "gpu_nvlink_errors_total",
            "gpu_probe_seconds",
        ),
        EntityKind.NIC: (
            "nic_port_state",
            "nic_port_physical_state",
            "nic_rate_bytes_per_second",
            "nic_received_bytes_total",
            "nic_transmitted_bytes_total",
            "nic_link_downed_total",
            "nic_link_error_recovery_total",
            "nic_symbol_errors_total",
            "nic_receive_errors_total",
            "nic_transmit_discards_total",
            "nic_transmit_wait_total",
        ),
        EntityKind.DISK: (
            "disk_reads_completed_total",
            "disk_read_bytes_total",
            "disk_read_seconds_total",
            "disk_writes_completed_total",
            "disk_written_bytes_total",
            "disk_write_seconds_total",
            "disk_in_flight",
            "disk_io_seconds_total",
            "disk_io_weighted_seconds_total",
            "disk_flushes_completed_total",
            "disk_flush_seconds_total",
            "disk_critical_warning",
            "disk_media_errors_total",
            "disk_endurance_used_ratio",
            "disk_available_spare_ratio",
            "disk_temperature_celsius",
            "disk_unsafe_shutdowns_total",
            "disk_error_log_entries_total",
        ),
        EntityKind.MOUNT: (
            "mount_read_bytes_total",
            "mount_written_bytes_total",
            "mount_operations_total",
            "mount_round_trip_seconds_total",
            "mount_queue_seconds_total",
            "mount_execute_seconds_total",
            "mount_retransmits_total",
            "mount_major_timeouts_total",
            "mount_slots_in_use_ratio",
            "mount_backlog_requests",
            "mount_age_seconds",
        ),
        EntityKind.NODE: (
            "node_gpus_visible",
            "node_gpus_on_pci",
            "node_gpus_expected",
            "node_nvml_call_age_seconds",
            "node_uptime_seconds",
            "node_load1",
            "node_memory_available_bytes",
            "node_processes_running",
            "node_processes_blocked",
            "node_interrupts_total",
            "node_context_switches_total",
            "node_pages_out_bytes_total",
            "node_pressure_cpu_seconds_total",
            "node_pressure_io_seconds_total",
            "node_pressure_io_full_seconds_total",
            "node_pressure_memory_seconds_total",
            "node_pressure_memory_full_seconds_total",
            "node_memory_total_bytes",
            "node_swap_used_bytes",
            "node_hung_tasks_total",
            "node_clock_synchronised",
            "node_clock_offset_seconds",
            "node_clock_error_seconds",
            "node_md_arrays_degraded",
            "node_nvme_controllers_down",
            "node_nfs_mounts",
            "node_nfs_mounts_left_out",
            "node_gpu_processes",
            "node_gpu_processes_without_job",
        ),
    }
)


def simulated_schema(kind: EntityKind) -> Schema:
    """Columns of one kind of entity, in the registry's order when the simulator was made.

    A list of its own: a metric that the simulator does not make must be absent from a recording,
    not a column of zeros.
    """
    return schema_for(kind, _SIMULATED[kind])
