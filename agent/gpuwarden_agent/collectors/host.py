"""The CPU side of the node: pressure, run queue, interrupts, paging, memory, hung tasks, clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.sources.kernel_clock import ClockState, KernelClock
from gpuwarden_agent.sources.kernel_files import read_text, reason_of
from gpuwarden_agent.sources.proc_files import (
    ProcFile,
    number_behind,
    read_missing,
    whole_number,
)
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_KIB = 1024
_MICRO = 1e-6
_Row = dict[str, Reading]
_Keys = tuple[tuple[bytes, str, int], ...]

# File, then what stands at the beginning of a line, metric, factor to base units.
_KEYED: tuple[tuple[str, _Keys], ...] = (
    (
        "stat",
        (
            (b"intr ", "node_interrupts_total", 1),
            (b"ctxt ", "node_context_switches_total", 1),
            (b"procs_running ", "node_processes_running", 1),
            (b"procs_blocked ", "node_processes_blocked", 1),
        ),
    ),
    ("vmstat", ((b"pgpgout ", "node_pages_out_bytes_total", _KIB),)),
    (
        "meminfo",
        (
            (b"MemAvailable:", "node_memory_available_bytes", _KIB),
            (b"MemTotal:", "node_memory_total_bytes", _KIB),
        ),
    ),
)
_BY_LINE = "vmstat"
_FIRST_WORDS = (("loadavg", "node_load1"), ("uptime", "node_uptime_seconds"))
_PRESSURES = ("cpu", "io", "memory")
# Since Linux 6.13; kernels before it, or without CONFIG_DETECT_HUNG_TASK, have no such file.
_HUNG_TASKS = "sys/kernel/hung_task_detect_count"

_LABELS = (
    ("kernel_release", "proc", "sys/kernel/osrelease"),
    ("product_name", "sys", "class/dmi/id/product_name"),
    ("product_vendor", "sys", "class/dmi/id/sys_vendor"),
)
_OFFSETS = ("node_clock_offset_seconds", "node_clock_error_seconds")


class HostCollector:
    """Reads a dozen files of procfs, and the kernel's clock.

    Args:
        proc_root: Where procfs is mounted.
        sys_root: Where sysfs is mounted.
        interval_s: Cadence, seconds.
        deadline_s: Deadline of one call, seconds.
        kernel_clock: Asks how well the clock is kept; raises OSError.
    """

    name = "host"

    def __init__(
        self,
        proc_root: Path,
        sys_root: Path,
        interval_s: float,
        deadline_s: float,
        kernel_clock: Callable[[], ClockState],
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._proc = proc_root
        self._sys = sys_root
        self._kernel_clock = kernel_clock
        names = [name for name, _ in (*_KEYED, *_FIRST_WORDS)]
        names += [_pressure_file(resource) for resource in _PRESSURES] + [_HUNG_TASKS]
        # All but vmstat, which is made line by line (fs/proc and kernel/sched/psi.c in the kernel)
        self._files = {
            name: ProcFile(f"{proc_root}/{name}", at_once=name != _BY_LINE) for name in names
        }
        self._labels: dict[str, str] | None = None

    def collect(self, now: float) -> Harvest:
        """All node readings of this collector.

        Raises:
            CollectorError: procfs is not there at all.
        """
        row: _Row = {}
        for name, keys in _KEYED:
            self._read_keyed(row, name, keys)
        for name, metric in _FIRST_WORDS:
            row[metric] = self._first_word(name)
        for resource in _PRESSURES:
            row.update(self._pressure(resource))
        row["node_hung_tasks_total"] = self._hung_tasks()
        if not any(isinstance(value, float | int) for value in row.values()):
            raise CollectorError("procfs_unreadable", f"Is procfs mounted at {self._proc}?")
        row.update(_clock_readings(self._kernel_clock))
        row = {name: value for name, value in row.items() if not isinstance(value, NotSupported)}
        return Harvest(rows={EntityKind.NODE: {"": row}}, inventory=self._inventory())

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def _read_keyed(self, row: _Row, name: str, keys: _Keys) -> None:
        try:
            text = self._files[name].read()
        except OSError as error:
            row.update({metric: Unavailable(reason_of(error)) for _, metric, _ in keys})
            return
        for key, metric, factor in keys:
            reading = number_behind(text, key)
            row[metric] = reading * factor if isinstance(reading, float | int) else reading
        if name == "meminfo":
            row["node_swap_used_bytes"] = _swap_used(text)

    def _first_word(self, name: str) -> Reading:
        try:
            return float(self._files[name].read().split(maxsplit=1)[0])
        except OSError as error:
            return Unavailable(reason_of(error))
        except (IndexError, ValueError):
            return Unavailable("not_a_number")

    def _pressure(self, resource: str) -> Mapping[str, Reading]:
        try:
            text = self._files[_pressure_file(resource)].read()
        except FileNotFoundError:
            return {}  # kernel without CONFIG_PSI
        except OSError as error:
            # EOPNOTSUPP: built in, and switched off by psi=0 on the kernel's command line
            reason = reason_of(error)
            missing: Reading = (
                NotSupported() if reason == "not_supported_by_kernel" else Unavailable(reason)
            )
            return {f"node_pressure_{resource}_seconds_total": missing}
        return parse_pressure(resource, text)

    def _hung_tasks(self) -> Reading:
        try:
            return whole_number(self._files[_HUNG_TASKS].read())
        except OSError as error:
            return read_missing(error)

    def _inventory(self) -> Inventory | None:
        """Facts that hold for as long as the machine is up: read once."""
        if self._labels is not None:
            return None
        roots = {"proc": self._proc, "sys": self._sys}
        self._labels = {}
        for label, root, path in _LABELS:
            if text := _text_or_empty(roots[root] / path):
                self._labels[label] = text[:200]
        return Inventory(labels=self._labels)


def _pressure_file(resource: str) -> str:
    return f"pressure/{resource}"


def parse_pressure(resource: str, text: bytes) -> _Row:
    """Totals of one pressure file, seconds.

    "some avg10=2.48 avg60=1.50 avg300=0.42 total=4623501" (Documentation/accounting/psi: us)
    """
    names = {b"some": f"node_pressure_{resource}_seconds_total"}
    if resource != "cpu":  # "full" of the whole machine has no meaning for cpu and is 0 there
        names[b"full"] = f"node_pressure_{resource}_full_seconds_total"
    row: _Row = {metric: Unavailable("no_such_line") for metric in names.values()}
    for line in text.splitlines():
        kind, _, rest = line.partition(b" ")
        if kind in names:
            total = whole_number(rest.rpartition(b"total=")[2])
            row[names[kind]] = total * _MICRO if isinstance(total, float | int) else total
    return row


def _swap_used(text: bytes) -> Reading:
    total, free = number_behind(text, b"SwapTotal:"), number_behind(text, b"SwapFree:")
    if not isinstance(total, float | int):
        return total
    if not isinstance(free, float | int):
        return free
    return (total - free) * _KIB if total >= free else Unavailable("implausible_value")


def _clock_readings(kernel_clock: Callable[[], ClockState]) -> _Row:
    try:
        state = kernel_clock()
    except OSError as error:
        reason: Reading = Unavailable(reason_of(error))
        return dict.fromkeys(("node_clock_synchronised", *_OFFSETS), reason)
    row: _Row = {"node_clock_synchronised": float(state.synchronised)}
    if state.synchronised:
        row.update(zip(_OFFSETS, (state.offset_s, state.error_s), strict=True))
    else:  # what it says then is left over from when it was
        row.update(dict.fromkeys(_OFFSETS, Unavailable("clock_unsynchronised")))
    return row


def _text_or_empty(path: Path) -> str:
    try:
        return read_text(path).strip()
    except OSError:
        return ""


def build(context: CollectorContext) -> Collector:
    """The collector as the settings want it."""
    settings = context.settings
    return HostCollector(
        settings.proc_root,
        settings.sys_root,
        settings.interval_s,
        settings.deadline_s,
        KernelClock(),
    )
