"""Errors that the kernel counts of the host's hardware: memory controllers and NVMe's PCI side.

Those of NICs stand with the ports, those of GPUs with NVML, which knows their identities.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.counter_plan import ErrorTotals, Row, error_totals
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.counter_files import CounterFiles
from gpuwarden_agent.sources.kernel_files import list_names, reason_of
from gpuwarden_agent.sources.listings import DeviceListing
from gpuwarden_agent.sources.pci_functions import function_behind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_CONTROLLER = re.compile(r"mc\d+")  # Documentation/ABI/testing/sysfs-devices-edac
_EDAC = (
    ("node_memory_corrected_errors_total", "ce_count"),
    ("node_memory_uncorrected_errors_total", "ue_count"),
)
_NAMESPACE = re.compile(r"nvme\d+n\d+")  # "nvme0n1"; "nvme0c0n1" is one path of a multipath one
_NVME = re.compile(r"nvme\d+")


class HardwareErrorCollector:
    """Reads /sys/devices/system/edac and the error counters of NVMe disks.

    Args:
        sys_root: Where sysfs is mounted.
        interval_s: Cadence.
        deadline_s: Seconds after which a call counts as stuck.
        clock: Monotonic seconds.
    """

    name = "hardware_errors"

    def __init__(
        self,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._edac = sys_root / "devices" / "system" / "edac" / "mc"
        self._block = sys_root / "class" / "block"
        self._controllers = DeviceListing(self._edac)
        self._blocks = DeviceListing(self._block)
        self._files = CounterFiles()
        self._memory: tuple[str, ...] = ()
        self._disks: dict[str, ErrorTotals] = {}
        self._nodes_seen = SeenDevices(clock)
        self._disks_seen = SeenDevices(clock)

    def collect(self, now: float) -> Harvest:
        """Error counts of host memory and of each NVMe disk; what is not counted is left out.

        Raises:
            CollectorError: A folder is there and cannot be listed.
        """
        try:
            self._look()
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"Let the agent list {self._edac} and {self._block}."
            ) from error
        node: Row = {metric: self._memory_total(file) for metric, file in _EDAC}
        disks = {name: self._disk(totals) for name, totals in self._disks.items()}
        rows = {
            EntityKind.NODE: self._nodes_seen.complete({"": node}),
            EntityKind.DISK: self._disks_seen.complete(disks),
        }
        return Harvest(
            rows={
                kind: {key: row for key, row in entities.items() if row}
                for kind, entities in rows.items()
            }
        )

    def close(self) -> None:
        """Close the counter files."""
        self._files.close()

    def _look(self) -> None:
        controllers = self._controllers.look()
        blocks = self._blocks.look()
        if controllers is not None:
            self._memory = tuple(
                str(self._edac / name) for name in controllers if _CONTROLLER.fullmatch(name)
            )
        if blocks is not None:
            self._disks = self._find_disks(blocks)
        if controllers is not None or blocks is not None:
            paths = {f"{folder}/{file}" for folder in self._memory for _, file in _EDAC}
            paths.update(path for one in self._disks.values() for path in one.paths.values())
            self._files.retain(paths)

    def _find_disks(self, blocks: list[str]) -> dict[str, ErrorTotals]:
        """Error files by disk; told for the first of several on one PCI function."""
        functions: dict[str, str] = {}
        for name in filter(_NAMESPACE.fullmatch, blocks):
            if function := self._function_of(name):
                functions.setdefault(function, name)
        return {
            name: error_totals(EntityKind.DISK, function) for function, name in functions.items()
        }

    def _function_of(self, disk: str) -> str:
        """A disk's device is its controller; with multipath it is a subsystem that links to it."""
        device = self._block / disk / "device"
        if function := function_behind(device):
            return function
        try:
            controllers = [name for name in list_names(device) if _NVME.fullmatch(name)]
        except OSError:
            return ""
        return function_behind(device / controllers[0]) if len(controllers) == 1 else ""

    def _memory_total(self, file: str) -> Reading:
        """Sum over all memory controllers; one that cannot be read makes it unknown."""
        total = 0
        for folder in self._memory:
            count = self._files.number(f"{folder}/{file}")
            if not isinstance(count, int):
                return Unavailable("no_such_file") if isinstance(count, NotSupported) else count
            total += count
        return total if self._memory else NotSupported()

    def _disk(self, totals: ErrorTotals) -> Row:
        row: Row = {}
        totals.read(self._files, row)
        return row


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return HardwareErrorCollector(settings.sys_root, settings.interval_s, settings.deadline_s)
