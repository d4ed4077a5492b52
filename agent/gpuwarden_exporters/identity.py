"""GPUs by what labels say of them."""

from __future__ import annotations

import re

from gpuwarden_exporters.rules import GpuFacts
from gpuwarden_kernel_log.pci import canonical_pci

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_FACT = ("", "N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "0")


def gpu_uuid_of(text: str) -> str:
    """NVML's spelling "GPU-…" of a UUID; "" where it is none (a MIG instance's has its own)."""
    bare = text.strip().lower().removeprefix("gpu-")
    return f"GPU-{bare}" if _UUID.fullmatch(bare) else ""


def gpu_facts(
    gpu_uuid: str,
    *,
    pci_bus_id: str = "",
    index: str = "",
    model: str = "",
    serial: str = "",
    driver_version: str = "",
    vbios_version: str = "",
) -> GpuFacts:
    """Facts as labels spell them, in our spelling; what says nothing is "".

    DCGM writes strings that it could not read as "<<<NULL>>>" (DCGM_STR_BLANK, dcgm_structs.h).
    """
    return GpuFacts(
        gpu_uuid,
        canonical_pci(pci_bus_id.strip()) or "",
        int(index) if index.isdecimal() and len(index) < 5 else None,
        _fact(model),
        _fact(serial),
        _fact(driver_version),
        _fact(vbios_version),
    )


def _fact(text: str) -> str:
    bare = text.strip()[:200]
    return "" if bare in _NO_FACT or bare.startswith("<<<") else bare
