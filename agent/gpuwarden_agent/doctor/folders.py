"""The running agent, its spool and the folder of the verdict file; nothing is written or locked."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuwarden_agent.config import AgentSettings
from gpuwarden_agent.doctor.finding import Finding, Level
from gpuwarden_agent.doctor.node import network_mounts
from gpuwarden_agent.maintenance import AgentNote

_AREA = "folders"
_MIB = 2**20

# "3: FLOCK  ADVISORY  WRITE 4711 fd:01:131077 0 EOF": the process, and device and inode (proc(5))
_LOCK = re.compile(r"FLOCK\s+ADVISORY\s+WRITE\s+(\d+)\s+([0-9a-f]+):([0-9a-f]+):(\d+)\s")


def look_at_agent(note: AgentNote | None) -> Iterator[Finding]:
    """The agent that runs on this node, by its own words."""
    if note is None:
        yield Finding("agent", "running agent", Level.ABSENT, "no agent runs with these settings")
        return
    yield Finding("agent", "running agent", Level.FINE, f"process {note.pid}")
    if note.released or note.held:
        held = "; ".join(note.held) or "it holds no device"
        mend = "`gpuwarden-agent maintenance stop` ends it."
        yield Finding("agent", "maintenance", Level.WARNING, held, mend)
    for source, reason in note.troubles:
        if source != "maintenance":
            yield Finding("agent", f"trouble {source}", Level.WARNING, reason)


def look_at_folders(settings: AgentSettings) -> Iterator[Finding]:
    """Spool, space and verdict file."""
    folder = settings.spool_folder
    yield _writable("spool folder", folder, "SPOOL_FOLDER", Level.VITAL)
    yield _space(settings)
    yield _spool(folder)
    yield _writable("verdict folder", settings.run_folder, "VERDICT_FILE", Level.WARNING)


def _writable(name: str, folder: Path, setting: str, level: Level) -> Finding:
    """Whether this user could write there; the folder may be made by the agent's start."""
    present = folder
    while not present.exists() and present != present.parent:
        present = present.parent
    mend = f"Make it writable for the agent, or set GPUWARDEN_AGENT_{setting}."
    if not present.is_dir():
        return Finding(_AREA, name, level, f"{present} is no folder", mend)
    if not os.access(present, os.W_OK | os.X_OK):
        return Finding(_AREA, name, level, f"{present} is not writable for us", mend)
    if present != folder:
        return Finding(_AREA, name, Level.FINE, f"{folder} will be made by the agent")
    facts = folder.stat()
    if facts.st_mode & stat.S_IWOTH and not facts.st_mode & stat.S_ISVTX:
        mend = f"chmod o-w {folder}"
        return Finding(_AREA, name, Level.WARNING, f"{folder} is writable for all", mend)
    return Finding(_AREA, name, Level.FINE, f"{folder}, owner {facts.st_uid}")


def _space(settings: AgentSettings) -> Finding:
    folder = settings.spool_folder
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    kind = _network_kind(folder, settings.proc_root)
    if kind:
        mend = "Set GPUWARDEN_AGENT_SPOOL_FOLDER to a local disk."
        return Finding(_AREA, "spool space", Level.WARNING, f"{folder} is on {kind}", mend)
    try:
        facts = os.statvfs(folder)
    except OSError as error:
        return Finding(_AREA, "spool space", Level.WARNING, f"{folder}: {error.strerror}")
    free = facts.f_bavail * facts.f_frsize
    wanted = settings.spool_cap_bytes
    says = f"{free // _MIB} MiB free, up to {wanted // _MIB} MiB used in an outage"
    if free < wanted:
        mend = "Free space, or lower GPUWARDEN_AGENT_SPOOL_CAP_BYTES."
        return Finding(_AREA, "spool space", Level.WARNING, says, mend)
    return Finding(_AREA, "spool space", Level.FINE, says)


def _network_kind(folder: Path, proc_root: Path) -> str:
    """Kind of the network file system that a folder lies on; found without asking its server."""
    try:
        mounts = network_mounts(proc_root)
    except OSError:
        return ""
    over = [str(one) for one in (folder, *folder.parents)]
    return next((mounts[point] for point in over if point in mounts), "")


def _spool(folder: Path) -> Finding:
    path = folder / "spool.db"
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return Finding(_AREA, "spool", Level.ABSENT, "none yet")
    except OSError as error:
        return Finding(_AREA, "spool", Level.VITAL, f"{path}: {error.strerror}")
    says = f"{size // 1024} KiB"
    owner = _lock_owner(folder / "lock")
    if owner:
        says += f", in use by process {owner}"
    return Finding(_AREA, "spool", Level.FINE, says)


def _lock_owner(path: Path) -> str:
    """Who holds the lock of a spool, as the kernel lists it: trying it could hold up an agent."""
    try:
        facts = path.stat()
        lines = Path("/proc/locks").read_text("ascii", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        found = _LOCK.search(line + " ")
        if found is None or int(found[4]) != facts.st_ino:
            continue
        if os.makedev(int(found[2], 16), int(found[3], 16)) == facts.st_dev:
            return found[1]
    return ""
