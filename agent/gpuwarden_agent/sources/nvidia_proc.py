"""Which GPU sits in which slot, as the NVIDIA driver's procfs has it."""

from __future__ import annotations

from pathlib import Path

from gpuwarden_agent.sources.kernel_files import list_names, read_text
from gpuwarden_kernel_log.pci import canonical_pci


def read_gpu_addresses(proc_root: Path) -> dict[str, str]:
    """PCI address by UUID; empty where the driver has no procfs, or we may not read it.

    /proc/driver/nvidia/gpus/0000:07:00.0/information holds a line "GPU UUID: GPU-b75ff7a9-…", with
    question marks for digits until a first process has used the GPU.
    """
    folder = proc_root / "driver" / "nvidia" / "gpus"
    addresses: dict[str, str] = {}
    try:
        for name in list_names(folder):
            uuid = _uuid_in(read_text(folder / name / "information"))
            address = canonical_pci(name)
            if uuid and address:
                addresses[uuid] = address
    except OSError:
        return addresses
    return addresses


def _uuid_in(text: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "GPU UUID":
            return value.strip()
    return ""
