"""Whom a kernel line speaks about, named as the wire names it."""

from __future__ import annotations

import re

from gpuwarden_kernel_log import Family, KernelEvent
from gpuwarden_wire.metrics import EntityKind

_GPU_FAMILIES = frozenset({Family.XID, Family.GPU_LOST, Family.RM_INIT_FAILED, Family.NVLINK})
_NIC_FAMILIES = frozenset({Family.NIC_LINK, Family.NIC_ERROR})
_DISK_FAMILIES = frozenset({Family.NVME_ERROR, Family.BLOCK_ERROR})

_PORT = re.compile(r"\bport:? ?(\d{1,3})\b", re.IGNORECASE)  # "mlx5_1: Port: 1 Link DOWN"
_NVME_CONTROLLER = re.compile(r"nvme\d+")  # "nvme nvme0: I/O 12 QID 3 timeout"
_PARTITION = re.compile(r"((?:sd|vd|xvd)[a-z]+)\d+|(nvme\d+n\d+|mmcblk\d+)p\d+")


def entity_of_line(found: KernelEvent) -> tuple[EntityKind, str]:
    """Whom a line speaks about; a GPU is joined by the server from `pci_bus_id`."""
    if found.family in _GPU_FAMILIES and found.pci_bus_id:
        return EntityKind.GPU, ""
    if found.family in _NIC_FAMILIES and found.device:
        return EntityKind.NIC, nic_entity(found.device, found.text)
    if found.family in _DISK_FAMILIES and found.device:
        return EntityKind.DISK, disk_entity(found.device)
    return EntityKind.NODE, ""


def nic_entity(device: str, text: str) -> str:
    """Entity key of a NIC: the interface, or "device/port" of an RDMA device (port 1 if unsaid)."""
    if not device.startswith(("mlx", "bnxt_re", "irdma", "hfi", "qedr", "rocep", "ibp")):
        return device
    port = _PORT.search(text)
    return f"{device}/{port[1] if port else 1}"


def disk_entity(device: str) -> str:
    """Entity key of a disk: the whole device; of an NVMe controller its first namespace."""
    if _NVME_CONTROLLER.fullmatch(device):
        return f"{device}n1"
    part = _PARTITION.fullmatch(device)
    return (part[1] or part[2]) if part else device
