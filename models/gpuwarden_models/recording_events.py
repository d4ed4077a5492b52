"""Kernel logs of a recording as events, in order of time."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path

from gpuwarden_kernel_log import KernelEvent, LineContext, scan_lines
from gpuwarden_models.frames import NodeEvent
from gpuwarden_models.recording_tables import FleetRow, RecordingError
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind


def read_events(folder: Path, fleet: Sequence[FleetRow], start: float) -> Iterator[NodeEvent]:
    """Events of all kernel logs, oldest first; lines without an absolute time are left out.

    Args:
        folder: The recording's kernel/ folder; need not exist.
        fleet: Joins PCI addresses to GPUs.
        start: Epoch seconds of the recording's start: gives syslog lines their year.

    Raises:
        RecordingError: A .gz file is broken.
    """
    paths = sorted(path for path in folder.glob("*.log*") if path.suffix in (".log", ".gz"))
    context = LineContext(timezone=UTC, year=datetime.fromtimestamp(start, UTC).year)
    gpus = {(row.node, row.pci_bus_id): row.gpu_uuid for row in fleet if row.pci_bus_id}
    logs = [sorted(_read_log(path, gpus, context), key=_time_of) for path in paths]
    return merge(*logs, key=_time_of)


def _time_of(event: NodeEvent) -> float:
    return event.event.observed_at


def _read_log(
    path: Path, gpus: Mapping[tuple[str, str], str], context: LineContext
) -> list[NodeEvent]:
    node = path.name.removesuffix(".gz").removesuffix(".log")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            return [
                NodeEvent(node, "", _event(path, number, found, found.observed_at, gpus, node))
                for number, found in scan_lines(lines, context)
                if found.observed_at is not None
            ]
    except (OSError, EOFError) as error:
        raise RecordingError(
            f"{path}: {error}; write it again, or move it out of the recording"
        ) from error


def _event(
    path: Path,
    number: int,
    found: KernelEvent,
    moment: datetime,
    gpus: Mapping[tuple[str, str], str],
    node: str,
) -> Event:
    gpu = gpus.get((node, found.pci_bus_id or ""), "")
    return Event(
        id=f"file:{path.name}:{number}",
        kind=EventKind.KERNEL_LOG,
        observed_at=moment.timestamp(),
        entity_kind=EntityKind.GPU if gpu else EntityKind.NODE,
        entity=gpu,
        family=found.family.value,
        xid=found.xid,
        sxid=found.sxid,
        pci_bus_id=found.pci_bus_id,
        pid=found.pid,
        process=found.process,
        severity=found.severity.value,
        device=found.device,
        text=found.text[:1000],
    )
