"""Local block devices: load, latency, queueing and flushes of each whole physical device.

Await is what a request takes: seconds by requests completed. Queue length is weighted seconds by
time, utilisation is seconds busy by time. The server makes them from the counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.collectors.seen import SeenDevices
from gpuwarden_agent.collectors.storage_paths import StoragePaths
from gpuwarden_agent.sources.block_devices import is_whole_disk
from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_agent.sources.proc_files import IMPLAUSIBLE, ProcFile
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_Row = dict[str, Reading]

_SECTOR_BYTES = 512  # of diskstats, whatever the device's own (Documentation/admin-guide/iostats)
_MILLI = 1e-3
_IN_FLIGHT = "disk_in_flight"
_IN_FLIGHT_AT_MOST = 1 << 31  # printed as 32 bits: a count that fell below 0 is just under 2**32

# Metric, index of the word in a line of diskstats from 0, factor to base units.
# " 259 0 nvme0n1 8512 0 1048576 931 77 0 616 12 0 1204 943 0 0 0 0 17 5"
_FIELDS: tuple[tuple[str, int, float], ...] = (
    ("disk_reads_completed_total", 3, 1),
    ("disk_read_bytes_total", 5, _SECTOR_BYTES),
    ("disk_read_seconds_total", 6, _MILLI),
    ("disk_writes_completed_total", 7, 1),
    ("disk_written_bytes_total", 9, _SECTOR_BYTES),
    ("disk_write_seconds_total", 10, _MILLI),
    (_IN_FLIGHT, 11, 1),
    ("disk_io_seconds_total", 12, _MILLI),
    ("disk_io_weighted_seconds_total", 13, _MILLI),
)
# Since Linux 5.5; before it a line ends with the discards of 4.18 or with field 14.
_FLUSH_FIELDS: tuple[tuple[str, int, float], ...] = (
    ("disk_flushes_completed_total", 18, 1),
    ("disk_flush_seconds_total", 19, _MILLI),
)
_WORDS_WITHOUT_FLUSHES = (14, 18)


class StorageCollector:
    """Reads /proc/diskstats, /proc/mdstat and the states of NVMe controllers."""

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
        self._file = ProcFile(f"{proc_root}/diskstats")
        self._blocks = f"{sys_root}/class/block"
        self._paths = StoragePaths(proc_root, sys_root)
        self._whole: dict[bytes, str] = {}
        self._seen = SeenDevices(clock)
        self._disks: tuple[str, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """Counters of every whole physical block device, and how many paths to storage are down.

        Raises:
            CollectorError: diskstats cannot be read.
        """
        try:
            text = self._file.read()
        except OSError as error:
            raise CollectorError(
                reason_of(error), f"Let the agent read {self._file.path}, or set the procfs root."
            ) from error
        rows = self._rows(text)
        disks = tuple(sorted(rows))
        changed = disks != self._disks
        self._disks = disks
        return Harvest(
            rows={
                EntityKind.DISK: self._seen.complete(rows),
                EntityKind.NODE: {"": self._paths.readings()},
            },
            inventory=Inventory(disks=disks) if changed else None,
        )

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._paths.close()

    def _rows(self, text: bytes) -> dict[str, _Row]:
        rows: dict[str, _Row] = {}
        whole: dict[bytes, str] = {}
        for words in map(bytes.split, text.splitlines()):
            if len(words) < 3:
                continue
            device = b" ".join(words[:3])  # the same number and name is the same device
            name = self._whole.get(device)
            if name is None:
                name = self._name_if_whole(words[2])
            whole[device] = name
            if name:
                rows[name] = disk_readings(words)
        self._whole = whole
        return rows

    def _name_if_whole(self, word: bytes) -> str:
        name = word.decode("utf-8", errors="replace")
        return name if is_whole_disk(self._blocks, name) else ""


def disk_readings(words: list[bytes]) -> _Row:
    """Readings of one line of diskstats, given as its words."""
    row: _Row = {}
    for metric, index, factor in _FIELDS:
        row[metric] = _reading(words, index, factor)
    if isinstance(depth := row[_IN_FLIGHT], float | int) and not 0 <= depth < _IN_FLIGHT_AT_MOST:
        row[_IN_FLIGHT] = Unavailable("implausible_value")
    for metric, index, factor in _FLUSH_FIELDS:
        if len(words) in _WORDS_WITHOUT_FLUSHES:
            row[metric] = NotSupported()
        else:
            row[metric] = _reading(words, index, factor)
    return row


def _reading(words: list[bytes], index: int, factor: float) -> Reading:
    try:
        value = int(words[index])
    except (IndexError, ValueError):
        return Unavailable("line_cut_short")
    return value * factor if 0 <= value < IMPLAUSIBLE else Unavailable("implausible_value")


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return StorageCollector(
        settings.proc_root, settings.sys_root, settings.interval_s, settings.deadline_s
    )
