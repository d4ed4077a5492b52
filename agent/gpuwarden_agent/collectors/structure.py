"""What holds the GPUs up: their module, daemons and switches; and how even our rounds are."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import FIRST_ROUND, Collector, Harvest
from gpuwarden_agent.sources.kernel_files import list_names, read_text, reason_of
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

SCAN_EVERY_S = 60.0
"""All processes are looked through this often at most, and only where a daemon is missing."""

# The kernel keeps 15 characters of a name (proc(5), comm): nv-fabricmanager, nvidia-persistenced.
DAEMONS: Mapping[str, str] = {
    "nv-fabricmanage": "node_fabric_manager_running",
    "nvidia-persiste": "node_persistence_daemon_running",
    "nvidia-imex": "node_imex_running",
}
_FABRIC_MANAGER = "node_fabric_manager_running"
_KTHREADD = 2  # starts all of the kernel's threads
_NVIDIA, _BRIDGE = "0x10de", "0x0680"  # an NVSwitch is a bridge of class "other" on the PCI bus


def boot_seconds() -> float:
    """Seconds since boot, suspend included: a frozen machine leaves a gap."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class StructureCollector:
    """Reads /proc and /sys/module; nothing here needs NVML.

    A daemon that was never seen on this node is no part of it: not supported, not 0. The fabric
    manager is missed besides where there are NVSwitches.

    Args:
        proc_root: Where procfs is mounted.
        sys_root: Where sysfs is mounted.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
        clock: Seconds that also pass while the machine sleeps.
    """

    name = "structure"

    def __init__(
        self,
        proc_root: Path,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._proc_root = proc_root
        self._sys_root = sys_root
        self._clock = clock
        self._before: float | None = None
        self._module = ModuleWatch(sys_root / "module" / "nvidia")
        self._processes: dict[str, int] = {}
        self._seen: set[str] = set()
        self._scan_at = 0.0
        self._unreadable: Unavailable | None = None
        self._switches = 0
        self._switches_at = 0.0

    def collect(self, now: float) -> Harvest:
        """Read everything once."""
        clock = self._clock()
        self._count_switches(clock)
        row: dict[str, Reading] = {**self._module.read(), **self._daemons(clock)}
        if self._switches:
            row["node_nvswitches"] = float(self._switches)
        # From the first round on, so that the columns of telemetry stay the same.
        before, self._before = self._before, clock
        row["node_collection_gap_seconds"] = (
            Unavailable(FIRST_ROUND) if before is None else clock - before
        )
        return Harvest(rows={EntityKind.NODE: {"": row}})

    def close(self) -> None:
        """Nothing is kept open."""

    def _daemons(self, clock: float) -> dict[str, Reading]:
        for comm, pid in list(self._processes.items()):
            if self._comm_of(pid) != comm:
                del self._processes[comm]
                self._scan_at = clock  # restarted, or gone: look at once
        if len(self._processes) < len(DAEMONS) and clock >= self._scan_at:
            self._scan_at = clock + SCAN_EVERY_S
            self._scan()
        return {metric: self._daemon(comm, metric) for comm, metric in DAEMONS.items()}

    def _daemon(self, comm: str, metric: str) -> Reading:
        if comm in self._processes:
            return 1.0
        if self._unreadable is not None:
            return self._unreadable
        expected = comm in self._seen or (metric == _FABRIC_MANAGER and self._switches > 0)
        return 0.0 if expected else NotSupported()

    def _scan(self) -> None:
        self._unreadable = None
        try:
            names = list_names(self._proc_root)
        except OSError as error:
            self._unreadable = Unavailable(reason_of(error))
            return
        of_kernel = self._kernel_threads()
        for name in names:
            if not name.isdecimal() or name in of_kernel:
                continue
            if (comm := self._comm_of(int(name))) in DAEMONS:
                self._processes[comm] = int(name)
                self._seen.add(comm)

    def _comm_of(self, pid: int) -> str:
        try:
            return read_text(f"{self._proc_root}/{pid}/comm").strip()
        except (OSError, ValueError):
            return ""

    def _kernel_threads(self) -> frozenset[str]:
        """Process ids of the kernel's threads: there are more of them than of all else.

        None are known in a process name space of our own, or where the kernel does not list
        children (CONFIG_PROC_CHILDREN).
        """
        if self._comm_of(_KTHREADD) != "kthreadd":
            return frozenset()
        children = f"{self._proc_root}/{_KTHREADD}/task/{_KTHREADD}/children"
        try:
            return frozenset(read_text(children).split())
        except OSError:
            return frozenset()

    def _count_switches(self, clock: float) -> None:
        """NVSwitches on the bus, once a minute."""
        if clock < self._switches_at:
            return
        self._switches_at = clock + SCAN_EVERY_S
        folder = f"{self._sys_root}/bus/pci/devices"
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names only; there are hundreds
        except OSError:
            return
        self._switches = sum(_is_switch(f"{folder}/{name}") for name in names)


class ModuleWatch:
    """Whether the driver's module is loaded, and how often it was loaded anew.

    Args:
        folder: /sys/module/nvidia.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: tuple[int, str] | None = None
        self._reloads = 0

    def read(self) -> dict[str, Reading]:
        """Not supported where the driver was never loaded."""
        try:
            present = (self._folder.stat().st_ino, self._version())
        except FileNotFoundError:
            loaded: Reading = NotSupported() if self._known is None else 0.0
        except OSError as error:
            loaded = Unavailable(reason_of(error))
        else:
            loaded = 1.0
            self._reloads += self._known is not None and present != self._known
            self._known = present
        return {
            "node_driver_loaded": loaded,
            "node_driver_reloads_total": (
                NotSupported() if self._known is None else float(self._reloads)
            ),
        }

    def _version(self) -> str:
        try:
            return read_text(self._folder / "version").strip()
        except OSError:
            return ""


def _is_switch(device: str) -> bool:
    try:
        if read_text(f"{device}/vendor").strip() != _NVIDIA:
            return False
        return read_text(f"{device}/class").startswith(_BRIDGE)
    except (OSError, ValueError):
        return False


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return StructureCollector(
        settings.proc_root, settings.sys_root, settings.interval_s, settings.deadline_s
    )
