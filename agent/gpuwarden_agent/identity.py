"""Who this node is and which boot it is in."""

from __future__ import annotations

import uuid
from pathlib import Path

from gpuwarden_agent.sources.kernel_files import read_text


def read_boot_id(proc_root: Path) -> str:
    """The kernel's boot id.

    Where procfs has none (a test root, another kernel) it is made from the boot time, or else
    random: then each start of the agent looks like a boot of its own.
    """
    try:
        text = read_text(proc_root / "sys" / "kernel" / "random" / "boot_id").strip()
        return str(uuid.UUID(text))
    except (OSError, ValueError):
        return _from_boot_time(proc_root)


def read_booted_at(proc_root: Path, now: float) -> float | None:
    """When this boot began, epoch seconds; None where procfs does not say."""
    try:
        uptime_s = float(read_text(proc_root / "uptime").split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return None
    return round(now - uptime_s, 3)


def _from_boot_time(proc_root: Path) -> str:
    try:
        lines = read_text(proc_root / "stat").splitlines()
    except OSError:
        lines = []
    # "btime 1764470113": seconds since the epoch at which the system booted (proc_stat(5))
    booted = next((line for line in lines if line.startswith("btime ")), None)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, booted)) if booted else str(uuid.uuid4())
