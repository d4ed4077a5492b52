"""Planes of evidence that a history says nothing of: what cannot be seen is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuwarden_models.backtest.history import History
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class BlindPlane:
    """A plane without any reading.

    Attributes:
        plane: Its name.
        why: What is missing.
        mend: What would make it seen.
    """

    plane: str
    why: str
    mend: str


@dataclass(frozen=True, slots=True)
class _Plane:
    """A plane with what shows it; one of the metrics is enough."""

    name: str
    kind: EntityKind
    metrics: tuple[str, ...]
    mend: str


_DCGM = "let dcgm-exporter give {}"
_NODE = "let node_exporter give {}"
_PLANES = (
    _Plane(
        "memory_errors",
        EntityKind.GPU,
        ("gpu_ecc_uncorrected_volatile_total", "gpu_ecc_corrected_volatile_total"),
        _DCGM.format("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL and DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    ),
    _Plane(
        "row_remap",
        EntityKind.GPU,
        (
            "gpu_row_remap_failure",
            "gpu_row_remap_pending",
            "gpu_rows_remapped_uncorrected_total",
            "gpu_rows_remapped_corrected_total",
        ),
        _DCGM.format("DCGM_FI_DEV_ROW_REMAP_FAILURE and DCGM_FI_DEV_ROW_REMAP_PENDING"),
    ),
    _Plane(
        "nvlink",
        EntityKind.GPU,
        (
            "gpu_nvlink_crc_errors_total",
            "gpu_nvlink_recoveries_total",
            "gpu_nvlink_errors_total",
            "gpu_nvlinks_inactive",
        ),
        _DCGM.format("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
    ),
    _Plane(
        "pcie",
        EntityKind.GPU,
        ("gpu_pcie_replay_total", "gpu_pcie_link_width"),
        _DCGM.format("DCGM_FI_DEV_PCIE_REPLAY_COUNTER and DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    ),
    _Plane(
        "thermal",
        EntityKind.GPU,
        ("gpu_temperature_celsius", "gpu_memory_temperature_celsius"),
        _DCGM.format("DCGM_FI_DEV_GPU_TEMP"),
    ),
    _Plane(
        "power",
        EntityKind.GPU,
        ("gpu_power_watts", "gpu_power_average_watts"),
        _DCGM.format("DCGM_FI_DEV_POWER_USAGE"),
    ),
    _Plane(
        "load",
        EntityKind.GPU,
        ("gpu_utilization_ratio", "gpu_sm_active_ratio"),
        _DCGM.format("DCGM_FI_DEV_GPU_UTIL"),
    ),
    _Plane(
        "device_count",
        EntityKind.NODE,
        ("node_gpus_visible", "node_gpus_on_pci"),
        "run the agent: exporters do not say which GPUs are gone",
    ),
    _Plane(
        "host",
        EntityKind.NODE,
        ("node_processes_running", "node_interrupts_total", "node_load1"),
        _NODE.format("node_procs_running and node_intr_total"),
    ),
    _Plane(
        "nic",
        EntityKind.NIC,
        ("nic_port_state", "nic_link_downed_total", "nic_carrier"),
        _NODE.format("node_infiniband_* or node_network_carrier"),
    ),
    _Plane(
        "disk",
        EntityKind.DISK,
        ("disk_reads_completed_total", "disk_io_seconds_total", "disk_media_errors_total"),
        _NODE.format("node_disk_*"),
    ),
    _Plane("mount", EntityKind.MOUNT, (), _NODE.format("node_mountstats_nfs_*")),
)


def blind_planes(history: History) -> list[BlindPlane]:
    """Planes that the history is blind on, in a fixed order."""
    blind: list[BlindPlane] = []
    for name, sees, why, mend in _BESIDE:
        if not sees(history):
            blind.append(BlindPlane(name, why, mend))
    for plane in _PLANES:
        have = set(history.metrics.get(plane.kind, ()))
        if not (have & set(plane.metrics) if plane.metrics else have):
            wanted = ", ".join(plane.metrics) or "any metric of a mount"
            blind.append(BlindPlane(plane.name, f"no series of {wanted}", plane.mend))
    return blind


_BESIDE: tuple[tuple[str, Callable[[History], bool], str, str], ...] = (
    (
        "kernel_log",
        lambda history: history.kernel_logs > 0,
        "no kernel log of any node: no XID, no line of a NIC, a disk or the host",
        "put kernel/NODE.log beside the metrics, e.g. from `journalctl -k -o short-iso`",
    ),
    (
        "jobs",
        lambda history: len(history.jobs) > 0,
        "no jobs.csv: a program's fault on many nodes cannot be told by its job",
        "write jobs.csv, e.g. from sacct",
    ),
    (
        "places",
        lambda history: any(place.rack or place.leaf for place in history.places.values()),
        "no rack or leaf in fleet.csv: what stands behind many nodes cannot be blamed",
        "write rack and leaf into fleet.csv",
    ),
)
