"""Local block devices: load, latency and queueing of each whole physical device."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.sources.kernel_files import list_names, read_text, reason_of
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

_SECTOR_BYTES = 512  # of diskstats, whatever the device's own (Documentation/admin-guide/iostats)
_MILLI = 1e-3

# Metric, index of the word in a line of diskstats from 0, factor to base units.
# " 259 0 nvme0n1 8512 0 1048576 931 77 0 616 12 0 1204 943 0 0 0 0"
_FIELDS: tuple[tuple[str, int, float], ...] = (
    ("disk_reads_completed_total", 3, 1),
    ("disk_read_bytes_total", 5, _SECTOR_BYTES),
    ("disk_read_seconds_total", 6, _MILLI),
    ("disk_writes_completed_total", 7, 1),
    ("disk_written_bytes_total", 9, _SECTOR_BYTES),
    ("disk_write_seconds_total", 10, _MILLI),
    ("disk_in_flight", 11, 1),
    ("disk_io_seconds_total", 12, _MILLI),
    ("disk_io_weighted_seconds_total", 13, _MILLI),
)

# Where sysfs is not to be had: "nvme0n1", "sda", "vdb" are whole; "nvme0n1p2", "sda1" are parts.
_WHOLE_NAME = re.compile(r"nvme\d+n\d+|(?:sd|vd|xvd|hd)[a-z]+|mmcblk\d+|pmem\d+")


class StorageCollector:
    """Reads /proc/diskstats."""

    name = "storage"

    def __init__(
        self,
        proc_root: Path,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._path = proc_root / "diskstats"
        self._blocks = sys_root / "class" / "block"
        self._seen = SeenDevices(clock)
        self._disks: tuple[str, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """Counters of every whole physical block device.

        Raises:
            CollectorError: diskstats cannot be read.
        """
        try:
            text = read_text(self._path)
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"Let the agent read {self._path}, or set the procfs root."
            ) from error
        rows = {
            words[2]: _readings(words)
            for words in map(str.split, text.splitlines())
            if len(words) > 2 and self._is_whole(words[2])
        }
        disks = tuple(sorted(rows))
        changed = disks != self._disks
        self._disks = disks
        return Harvest(
            rows={EntityKind.DISK: self._seen.complete(rows)},
            inventory=Inventory(disks=disks) if changed else None,
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _is_whole(self, name: str) -> bool:
        try:
            facts = list_names(self._blocks / name)
        except OSError:
            facts = []
        if facts:
            # A physical device has a `device` link; md, dm, loop and zram have none.
            return "partition" not in facts and "device" in facts
        return _WHOLE_NAME.fullmatch(name) is not None


def _readings(words: list[str]) -> dict[str, Reading]:
    row: dict[str, Reading] = {}
    for metric, index, factor in _FIELDS:
        try:
            row[metric] = int(words[index]) * factor
        except (IndexError, ValueError):
            row[metric] = Unavailable("line_cut_short")
    return row


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return StorageCollector(
        settings.proc_root, settings.sys_root, settings.interval_s, settings.deadline_s
    )
