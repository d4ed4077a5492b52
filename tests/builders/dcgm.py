"""Text as dcgm-exporter serves it, in the names and labels of its versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Field's name before and since DCGM 4.6.
RENAMED: Mapping[str, str] = {
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_SLOWDOWN_TEMP": "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "DCGM_FI_DEV_ROW_REMAP_FAILED",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL",
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
    "DCGM_FI_DEV_COUNT": "DCGM_FI_SYSTEM_GPU_QUANTITY",
    "DCGM_FI_DEV_SHUTDOWN_TEMP": "DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS",
    "DCGM_FI_DEV_PSTATE": "DCGM_FI_DEV_GPU_PSTATE",
    "DCGM_FI_DEV_PERSISTENCE_MODE": "DCGM_FI_DEV_GPU_PERSISTENCE_MODE",
    "DCGM_FI_DEV_ECC_CURRENT": "DCGM_FI_DEV_ECC_MODE",
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX": "DCGM_FI_DEV_BANK_REMAP_AVAIL_MAX",
    "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW": "DCGM_FI_DEV_BANK_REMAP_AVAIL_LOW",
    "DCGM_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS": "DCGM_FI_DEV_PCIE_CORRECTABLE_ERROR_TOTAL",
}

UUID = "GPU-71a95824-2461-8638-2d09-caf83c2e470b"
OTHER_UUID = "GPU-0d463822-1413-4315-e1a4-5503c4d55d03"


@dataclass
class DcgmGpu:
    """One GPU as an exporter shows it: numbers by old field name, in DCGM's units.

    Attributes:
        links: State of NVLinks, by number.
        instances: MIG instances (id, profile), each with a row of every field.
    """

    uuid: str = UUID
    index: int = 0
    pci: str = "00000000:1B:00.0"
    model: str = "NVIDIA H100 80GB HBM3"
    numbers: dict[str, float | str] = field(default_factory=dict)
    links: Mapping[int, int] = field(default_factory=dict)
    instances: tuple[tuple[int, str], ...] = ()


def dcgm_text(gpus: Iterable[DcgmGpu], *, new: bool = False, host: str = "node-1") -> str:
    """The text of an exporter of DCGM before 4.6, or since."""
    lines: list[str] = []
    for gpu in gpus:
        uuid, hostname = ("uuid", "hostname") if new else ("UUID", "Hostname")
        labels = (
            f'gpu="{gpu.index}",{uuid}="{gpu.uuid}",pci_bus_id="{gpu.pci}",'
            f'device="nvidia{gpu.index}",modelName="{gpu.model}"'
        )
        tail = f'{hostname}="{host}",DCGM_FI_DRIVER_VERSION="580.95.05"'
        rows = [f',GPU_I_PROFILE="{p}",GPU_I_ID="{i}"' for i, p in gpu.instances] or [""]
        for name, number in gpu.numbers.items():
            shown = RENAMED.get(name, name) if new else name
            lines += [f"# HELP {shown} what it is", f"# TYPE {shown} gauge"]
            lines += [f"{shown}{{{labels}{row},{tail}}} {number}" for row in rows]
        # series about links have labels of their own
        link_labels = f'gpu="{gpu.index}",gpu_uuid="{gpu.uuid}",pci_bus_id="{gpu.pci}"'
        lines += [
            f'DCGM_FI_DEV_NVLINK_GET_STATE{{nvlink="{link}",{link_labels},'
            f'model_name="{gpu.model}",hostname="{host}"}} {state}'
            for link, state in gpu.links.items()
        ]
    return "\n".join(lines) + "\n"
