"""Small recordings as people have them, written by hand, and what is read of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording import Recording
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind

START = 1_772_323_200.0  # 2026-03-01T00:00:00Z
A, B = (f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in (1, 2))
ALL_KINDS = tuple(KEY_COLUMNS)
GPU, NODE, NIC, MOUNT = EntityKind.GPU, EntityKind.NODE, EntityKind.NIC, EntityKind.MOUNT


def text(folder: Path, lines: Iterable[str], name: str = "all.om", end: str = "# EOF\n") -> Path:
    """A recording of OpenMetrics text."""
    (folder / "metrics").mkdir(exist_ok=True)
    (folder / "metrics" / name).write_text("".join(f"{line}\n" for line in lines) + end)
    return folder


def wide(folder: Path, name: str, columns: Mapping[str, Sequence[object]]) -> Path:
    """A recording of one Parquet file."""
    (folder / "metrics").mkdir(exist_ok=True)
    pq.write_table(pa.table(dict(columns)), folder / "metrics" / f"{name}.parquet")
    return folder


def gpu_lines(name: str, values: Sequence[float], uuid: str = A, step: float = 30.0) -> list[str]:
    labels = f'node="n1",gpu="0",UUID="{uuid}",pci_bus_id="00000000:1B:00.0"'
    return [f"{name}{{{labels}}} {v} {START + i * step:.3f}" for i, v in enumerate(values)]


def frames_of(folder: Path) -> list[Frame]:
    return list(Recording(folder, ALL_KINDS).frames())


def table(frame: Frame, kind: EntityKind) -> FrameTable:
    return next(table for table in frame.tables if table.kind is kind)


def column(folder: Path, kind: EntityKind, metric: str, row: int = 0) -> list[float]:
    return [float(table(frame, kind).column(metric)[row]) for frame in frames_of(folder)]


def events_of(folder: Path) -> list[Event]:
    return [item.event for frame in frames_of(folder) for item in frame.events]
