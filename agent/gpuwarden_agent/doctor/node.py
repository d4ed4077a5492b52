"""The roots, the hardware they show, and what is installed to read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuwarden_agent.collectors.smart import find_tool
from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.doctor.finding import Finding, Level
from gpuwarden_agent.sources.kernel_files import list_names, read_text, reason_of

_AREA = "node"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "ceph", "fuse.glusterfs"}
)


def look_at_node(settings: AgentSettings) -> Iterator[Finding]:
    """procfs, sysfs, InfiniBand, NVMe and network mounts."""
    yield _root("procfs", settings.proc_root / "uptime", "proc_root")
    yield _root("sysfs", settings.sys_root / "class" / "net", "sys_root")
    yield _counted("InfiniBand", settings.sys_root / "class" / "infiniband")
    yield _nvme(settings)
    yield _mounts(settings)


def _root(name: str, path: Path, setting: str) -> Finding:
    try:
        if path.is_dir():
            list_names(path)
        else:
            read_text(path)
    except OSError as error:
        mend = f"Mount it, or set GPUWARDEN_AGENT_{setting.upper()}."
        return Finding(_AREA, name, Level.VITAL, f"{path}: {reason_of(error)}", mend)
    if not path.exists():
        mend = f"Mount it, or set GPUWARDEN_AGENT_{setting.upper()}."
        return Finding(_AREA, name, Level.VITAL, f"{path} is not there", mend)
    return Finding(_AREA, name, Level.FINE, f"{path} is readable")


def _counted(name: str, folder: Path) -> Finding:
    try:
        found = list_names(folder)
    except OSError as error:
        mend = f"Let the agent read {folder}."
        return Finding(_AREA, name, Level.WARNING, reason_of(error), mend)
    if not found:
        return Finding(_AREA, name, Level.ABSENT, f"no device in {folder}")
    return Finding(_AREA, name, Level.FINE, f"{len(found)}: {', '.join(found[:8])}")


def _nvme(settings: AgentSettings) -> Finding:
    found = _counted("NVMe", settings.sys_root / "class" / "nvme")
    if found.level is not Level.FINE:
        return found
    tool = find_tool()
    if tool is None:
        mend = "Install nvme-cli or smartmontools to have wear and media errors read."
        return Finding(_AREA, "NVMe", Level.WARNING, f"{found.says}; no tool to ask them", mend)
    return Finding(_AREA, "NVMe", Level.FINE, f"{found.says}; asked by {tool.path}")


def _mounts(settings: AgentSettings) -> Finding:
    path = settings.proc_root / "self" / "mountstats"
    try:
        mounts = network_mounts(settings.proc_root)
        read_text(path)
    except OSError as error:
        return Finding(_AREA, "NFS mounts", Level.WARNING, f"{path}: {reason_of(error)}")
    nfs = [point for point, kind in mounts.items() if kind.startswith("nfs")]
    if not nfs:
        return Finding(_AREA, "NFS mounts", Level.ABSENT, "none mounted")
    return Finding(_AREA, "NFS mounts", Level.FINE, f"{len(nfs)}: {', '.join(nfs[:4])}")


def network_mounts(proc_root: Path) -> dict[str, str]:
    """Kind of file system of each network mount, by mount point, as /proc/self/mounts writes it.

    Raises:
        OSError: The file cannot be read.
    """
    # "10.0.0.1:/srv /data nfs4 rw,relatime,vers=4.2 0 0" (proc(5), fstab(5))
    rows = (line.split(" ") for line in read_text(proc_root / "self" / "mounts").splitlines())
    return {row[1]: row[2] for row in rows if len(row) > 2 and row[2] in NETWORK_FILE_SYSTEMS}
