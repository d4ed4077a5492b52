"""What stands between the node and its storage: RAID arrays, NVMe controllers, NVMe-oF paths."""

from __future__ import annotations

import re
from pathlib import Path

from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.kernel_files import list_names, reason_of
from gpuwarden_agent.sources.proc_files import ProcFile, read_missing
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_LIVE = "live"  # nvme_ctrl_state of drivers/nvme/host: new, live, resetting, connecting, dead …

# "md6 : active raid1 sdb2[2](F) sdc[1](S) sda2[0]"
_ARRAY = re.compile(rb"^md\S* : (\S+)")
# "      195310144 blocks super 1.2 [2/1] [U_]": members wanted, members that work
_MEMBERS = re.compile(rb" \[(\d{1,4})/(\d{1,4})\]")


class StoragePaths:
    """Counts arrays and controllers that are not as they should be. Not thread-safe."""

    def __init__(self, proc_root: Path, sys_root: Path) -> None:
        self._mdstat = ProcFile(f"{proc_root}/mdstat")
        self._controllers = f"{sys_root}/class/nvme"
        self._states = CounterFiles()

    def readings(self) -> dict[str, Reading]:
        """Node readings; what this node does not have is left out."""
        row = {
            "node_md_arrays_degraded": self._degraded_arrays(),
            "node_nvme_controllers_down": self._controllers_down(),
        }
        return {name: value for name, value in row.items() if not isinstance(value, NotSupported)}

    def close(self) -> None:
        """Close the files."""
        self._mdstat.close()
        self._states.close()

    def _degraded_arrays(self) -> Reading:
        try:
            return count_degraded(self._mdstat.read())
        except OSError as error:
            return read_missing(error)

    def _controllers_down(self) -> Reading:
        try:
            names = list_names(self._controllers)
        except OSError as error:
            return Unavailable(reason_of(error))
        if not names:
            return NotSupported()
        paths = [f"{self._controllers}/{name}/state" for name in names]
        self._states.retain(paths)
        down = 0
        for path in paths:
            try:
                down += self._states.text(path) != _LIVE
            except FileNotFoundError:
                continue  # vanished between two looks, or a kernel that does not say
            except OSError as error:
                return Unavailable(reason_of(error))
        return down


def count_degraded(mdstat: bytes) -> int:
    """Arrays of /proc/mdstat that are inactive or have fewer working members than they want.

    A container of external metadata is inactive by nature: "md219 : inactive sdb[2](S) …",
    "super external:imsm".
    """
    degraded = 0
    for block in mdstat.split(b"\n\n"):
        lines = block.strip(b"\n").split(b"\n")
        head = next((found for line in lines if (found := _ARRAY.match(line))), None)
        if head is None or (b"super external:" in block and head[1] == b"inactive"):
            continue
        members = _MEMBERS.search(block)
        short = members is not None and int(members[2]) < int(members[1])
        degraded += short or head[1] == b"inactive"
    return degraded
