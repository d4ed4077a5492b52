"""The CPU side of the node: pressure, run queue, interrupts, paging, memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.sources.kernel_files import read_text, reason_of
from gpuwarden_wire.events import Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Reading, Unavailable

_KIB = 1024
_MICRO = 1e-6
_Row = dict[str, Reading]

# Key in the file, metric, factor to base units.
_STAT = (
    ("intr", "node_interrupts_total", 1.0),
    ("ctxt", "node_context_switches_total", 1.0),
    ("procs_running", "node_processes_running", 1.0),
    ("procs_blocked", "node_processes_blocked", 1.0),
)
_VMSTAT = (("pgpgout", "node_pages_out_bytes_total", float(_KIB)),)
_MEMINFO = (("MemAvailable:", "node_memory_available_bytes", float(_KIB)),)
_Keys = tuple[tuple[str, str, float], ...]

_LABELS = (
    ("kernel_release", "proc", "sys/kernel/osrelease"),
    ("product_name", "sys", "class/dmi/id/product_name"),
    ("product_vendor", "sys", "class/dmi/id/sys_vendor"),
)


class HostCollector:
    """Reads stat, vmstat, meminfo, loadavg, uptime and the pressure files of procfs."""

    name = "host"

    def __init__(
        self, proc_root: Path, sys_root: Path, interval_s: float, deadline_s: float
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._proc = proc_root
        self._sys = sys_root
        self._labels: dict[str, str] | None = None

    def collect(self, now: float) -> Harvest:
        """All node readings of this collector.

        Raises:
            CollectorError: procfs is not there at all.
        """
        row: _Row = {}
        self._read(row, "stat", _STAT)
        self._read(row, "vmstat", _VMSTAT)
        self._read(row, "meminfo", _MEMINFO)
        row["node_load1"] = self._first_word("loadavg")
        row["node_uptime_seconds"] = self._first_word("uptime")
        for resource in ("cpu", "io", "memory"):
            row.update(self._pressure(resource))
        row = {name: value for name, value in row.items() if not isinstance(value, NotSupported)}
        if not any(isinstance(value, float | int) for value in row.values()):
            raise CollectorError("procfs_unreadable", f"Is procfs mounted at {self._proc}?")
        return Harvest(rows={EntityKind.NODE: {"": row}}, inventory=self._inventory())

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, row: _Row, name: str, keys: _Keys) -> None:
        try:
            text = read_text(self._proc / name)
        except OSError as error:
            row.update({metric: Unavailable(reason_of(error)) for _, metric, _ in keys})
            return
        row.update(parse_keyed(text.splitlines(), keys))

    def _first_word(self, name: str) -> Reading:
        try:
            return float(read_text(self._proc / name).split(maxsplit=1)[0])
        except OSError as error:
            return Unavailable(reason_of(error))
        except (IndexError, ValueError):
            return Unavailable("not_a_number")

    def _pressure(self, resource: str) -> _Row:
        try:
            text = read_text(self._proc / "pressure" / resource)
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

    def _inventory(self) -> Inventory | None:
        roots = {"proc": self._proc, "sys": self._sys}
        labels = {}
        for label, root, path in _LABELS:
            if text := _text_or_empty(roots[root] / path):
                labels[label] = text[:200]
        if labels == self._labels:
            return None
        self._labels = labels
        return Inventory(labels=labels)


def parse_keyed(lines: Iterable[str], keys: _Keys) -> _Row:
    """Numbers behind keys at the start of lines: "ctxt 1990473", "MemAvailable:  24 kB"."""
    wanted = {key: (metric, factor) for key, metric, factor in keys}
    row: _Row = {metric: Unavailable("no_such_line") for _, metric, _ in keys}
    for line in lines:
        words = line.split(maxsplit=2)
        if not words or words[0] not in wanted:
            continue
        metric, factor = wanted[words[0]]
        try:
            row[metric] = int(words[1]) * factor
        except (IndexError, ValueError):
            row[metric] = Unavailable("not_a_number")
    return row


def parse_pressure(resource: str, text: str) -> _Row:
    """Totals of one pressure file, seconds.

    "some avg10=2.48 avg60=1.50 avg300=0.42 total=4623501" (Documentation/accounting/psi: us)
    """
    names = {"some": f"node_pressure_{resource}_seconds_total"}
    if resource != "cpu":  # "full" of the whole machine has no meaning for cpu and is 0 there
        names["full"] = f"node_pressure_{resource}_full_seconds_total"
    row: _Row = {metric: Unavailable("no_such_line") for metric in names.values()}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind not in names:
            continue
        total = rest.rpartition("total=")[2]
        row[names[kind]] = int(total) * _MICRO if total.isdigit() else Unavailable("not_a_number")
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
        settings.proc_root, settings.sys_root, settings.interval_s, settings.deadline_s
    )
