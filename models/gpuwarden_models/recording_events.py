"""Kernel logs of a recording as events, in order of time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from types import MappingProxyType

from gpuwarden_kernel_log import Family, KernelEvent, LineContext, scan_lines
from gpuwarden_models.frames import NodeEvent
from gpuwarden_models.recording_tables import RecordingError
from gpuwarden_wire.events import Backlog, Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_NEWS_S = 60.0
"""Lines from longer before the recording are a kernel's old ring: known when it began."""


_KINDS: Mapping[Family, EntityKind] = MappingProxyType(
    {
        Family.NIC_LINK: EntityKind.NIC,
        Family.NIC_ERROR: EntityKind.NIC,
        Family.NVME_ERROR: EntityKind.DISK,
        Family.BLOCK_ERROR: EntityKind.DISK,
    }
)


Slots = Mapping[tuple[str, str], tuple[tuple[float, str], ...]]
"""GPUs by node and PCI address, each with the epoch seconds from which it is there, in order."""


@dataclass(frozen=True, slots=True)
class KnownEntities:
    """Whom lines may speak about.

    Attributes:
        gpus: Who is in each slot, and who was.
        others: Node, kind and key of all other entities that the metrics name.
    """

    gpus: Slots
    others: Set[tuple[str, EntityKind, str]]

    def of(self, node: str, found: KernelEvent, at: float) -> tuple[EntityKind, str]:
        """Whom a line of a moment speaks about; the node, where it names nobody that is known."""
        if there := self.gpus.get((node, found.pci_bus_id or "")):
            began = [gpu for since, gpu in there if since <= at]
            return EntityKind.GPU, began[-1] if began else there[0][1]
        kind, device = _KINDS.get(found.family), found.device or ""
        if kind is None or not device:
            return EntityKind.NODE, ""
        # A port of an RDMA device, the first namespace of an NVMe controller.
        spelt = (device, f"{device}/1", f"{device}n1")
        known = (key for key in spelt if (node, kind, key) in self.others)
        key = next(known, "")
        return (kind, key) if key else (EntityKind.NODE, "")


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the logs of one recording are read: its times, and whom they may speak about."""

    start: float
    end: float
    known: KnownEntities

    @property
    def context(self) -> LineContext:
        """What lines do not say: the zone, and syslog's the year."""
        return LineContext(timezone=UTC, year=datetime.fromtimestamp(self.start, UTC).year)

    def moment(self, said: datetime) -> float:
        """Epoch seconds of a line, the turn of a year seen where the recording has one."""
        first = datetime.fromtimestamp(self.start, UTC)
        last = datetime.fromtimestamp(self.end, UTC)
        turned = last.year > first.year and said.year == first.year
        if turned and said.astimezone(UTC).month < first.month:
            said = said.replace(year=last.year)
        return said.timestamp()


def read_events(
    folder: Path, known: KnownEntities, start: float, end: float
) -> Iterator[NodeEvent]:
    """Events of all kernel logs, oldest first; lines without an absolute time are left out.

    Args:
        folder: The recording's kernel/ folder; need not exist.
        known: Whom lines may speak about.
        start: Epoch seconds of the recording's start: gives syslog lines their year.
        end: Epoch seconds of its end.

    Raises:
        RecordingError: A .gz file is broken.
    """
    reading = _Reading(start, end, known)
    logs = [sorted(_read_log(path, reading), key=_time_of) for path in kernel_logs(folder)]
    return merge(*logs, key=_time_of)


def kernel_logs(folder: Path) -> tuple[Path, ...]:
    """Logs in a recording's kernel/ folder, which need not exist."""
    return tuple(sorted(path for path in folder.glob("*.log*") if path.suffix in (".log", ".gz")))


def _time_of(event: NodeEvent) -> float:
    return event.event.observed_at


def _read_log(path: Path, reading: _Reading) -> list[NodeEvent]:
    node = path.name.removesuffix(".gz").removesuffix(".log")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            return [
                NodeEvent(node, "", _event(node, number, found, found.observed_at, reading))
                for number, found in scan_lines(lines, reading.context)
                if found.observed_at is not None
            ]
    except (OSError, EOFError, zlib.error) as error:
        raise RecordingError(
            f"{path}: {error}; write it again, or move it out of the recording"
        ) from error


def _event(node: str, number: int, found: KernelEvent, said: datetime, reading: _Reading) -> Event:
    moment = reading.moment(said)
    kind, entity = reading.known.of(node, found, moment)
    old = moment < reading.start - _NEWS_S
    return Event(
        id=f"file:{node}:{number}",
        kind=EventKind.KERNEL_LOG,
        observed_at=moment,
        entity_kind=kind,
        entity=entity,
        family=found.family.value,
        xid=found.xid,
        sxid=found.sxid,
        pci_bus_id=found.pci_bus_id,
        pid=found.pid,
        process=found.process,
        severity=found.severity.value,
        device=found.device,
        text=found.text[:1000],
        backlog=Backlog.FIRST_LOOK if old else Backlog.NONE,
    )
