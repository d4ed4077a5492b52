"""Reads a recording, the neutral folder that anyone can make, back into frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_models.names import KEY_COLUMNS, RECORDED
from gpuwarden_models.recording_events import read_events
from gpuwarden_models.recording_parquet import (
    Keys,
    column,
    column_names,
    files_of,
    key_lists,
    look_over,
    read_parquet,
    usual_step,
)
from gpuwarden_models.recording_tables import (
    FleetRow,
    LabelRow,
    RecordingError,
    read_fleet,
    read_labels,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.schema import Schema, schema_for

__all__ = ["Recording", "RecordingError"]

_FRAMES_AT_ONCE = 256


class Description(msgspec.Struct, frozen=True):
    """recording.json; what is absent is taken from the metrics."""

    format: str = "gpuwarden-recording"
    version: int = 1
    start: float | None = None
    end: float | None = None
    interval_s: float | None = None
    origin: str = ""
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """Files of one kind of entity, its entities in row order, and the columns that we know."""

    schema: Schema
    files: tuple[Path, ...]
    keys: tuple[str, ...]
    wire_keys: tuple[str, ...]
    node_of: NDArray[np.int64]
    row_of: Mapping[Keys, int]


class Recording:
    """An opened recording.

    Attributes:
        folder: Where it lies.
        start: Epoch seconds of the first reading.
        end: Epoch seconds of the last.
        interval_s: Time between frames.
        origin: "simulated" or what else made it, "" where it does not say.
        seed: Seed of a simulated one, None where it does not say.
        nodes: Names, sorted.
        fleet: Rows of fleet.csv.
        labels: Rows of labels.csv.
    """

    def __init__(
        self, folder: Path, kinds: Sequence[EntityKind] = (EntityKind.GPU, EntityKind.NODE)
    ) -> None:
        """Open a recording and look over its files; readings come with `frames`.

        Args:
            folder: The recording.
            kinds: What to read; the others are left alone.

        Raises:
            RecordingError: No recording, or a file that cannot be read; names it and the mend.
        """
        if not folder.is_dir():
            raise RecordingError(
                f"{folder}: no such folder; make one with `gpuwarden simulate --out {folder}`"
            )
        self.folder = folder
        files = {kind: files_of(folder, kind) for kind in kinds}
        if not any(files.values()):
            raise RecordingError(_no_metrics(folder))
        described = _read_description(folder / "recording.json")
        self.fleet: tuple[FleetRow, ...] = read_fleet(folder / "fleet.csv")
        self.labels: tuple[LabelRow, ...] = read_labels(folder / "labels.csv")
        self.origin = described.origin
        self.seed = described.seed
        seen, stamps = look_over(files)
        self.start = float(stamps[0]) if described.start is None else described.start
        self.end = float(stamps[-1]) if described.end is None else described.end
        self.interval_s = described.interval_s or usual_step(stamps)
        names = {key[0] for keys in seen.values() for key in keys}
        self.nodes: tuple[str, ...] = tuple(sorted(names))
        self._sources = tuple(
            _source(kind, files[kind], seen[kind], self.nodes) for kind in kinds if files[kind]
        )

    def frames(self) -> Iterator[Frame]:
        """All readings, one frame an interval, with the kernel's events since the frame before.

        Readings off the common grid belong to the nearest frame. A frame's time is that of its
        latest reading. Intervals without any reading make no frame.

        Raises:
            RecordingError: A file broke off in the middle.
        """
        events = iter(read_events(self.folder / "kernel", self.fleet, self.start))
        waiting = next(events, None)
        total = round((self.end - self.start) / self.interval_s) + 1
        for first in range(0, total, _FRAMES_AT_ONCE):
            for at, tables in self._window(first, min(first + _FRAMES_AT_ONCE, total)):
                due: list[NodeEvent] = []
                while waiting is not None and waiting.event.observed_at <= at:
                    due.append(waiting)
                    waiting = next(events, None)
                boots = ("",) * len(self.nodes)
                yield Frame(at, self.nodes, boots, tables, tuple(due))

    def _window(self, first: int, last: int) -> Iterator[tuple[float, tuple[FrameTable, ...]]]:
        half = 0.5 * self.interval_s
        begin = self.start + first * self.interval_s - half
        until = self.start + last * self.interval_s - half
        loaded = [_load(source, begin, until, self.interval_s) for source in self._sources]
        for number in range(last - first):
            made = [item.table(number) for item in loaded]
            times = [at for at, table in made if table.reported.any()]
            if times:
                yield max(times), tuple(table for _, table in made)


@dataclass(frozen=True, slots=True, eq=False)
class _Loaded:
    """Readings of one kind in one window, sorted by frame."""

    source: _Source
    at: NDArray[np.float64]
    row: NDArray[np.int64]
    values: NDArray[np.float64]
    bounds: NDArray[np.int64]

    def table(self, number: int) -> tuple[float, FrameTable]:
        """One frame's table and its latest time (-inf where it has no reading)."""
        source = self.source
        part = slice(*np.searchsorted(self.bounds, (number, number + 1)).tolist())
        rows = self.row[part]
        values = np.full((len(source.schema.columns), len(source.keys)), np.nan)
        values[:, rows] = self.values[:, part]
        reported = np.zeros(len(source.keys), dtype=np.bool_)
        reported[rows] = True
        table = FrameTable(
            source.schema, source.keys, source.wire_keys, source.node_of, values, reported
        )
        return float(self.at[part].max(initial=-np.inf)), table


def _load(source: _Source, begin: float, until: float, interval_s: float) -> _Loaded:
    wanted = [("timestamp", ">=", begin), ("timestamp", "<", until)]
    names = [RECORDED[column.name] for column in source.schema.columns]
    keys = KEY_COLUMNS[source.schema.entity_kind]
    at, row, blocks = [np.empty(0)], [np.empty(0, dtype=np.int64)], [np.empty((len(names), 0))]
    for path in source.files:
        have = set(column_names(path))
        columns = ["timestamp", *keys, *(n.column for n in names if n.column in have)]
        table = read_parquet(path, columns, wanted)
        at.append(table["timestamp"].to_numpy().astype(np.float64))
        row.append(_rows_of(table, source))
        blocks.append(
            np.stack([column(table, name.column) / name.factor for name in names])
            if names
            else np.empty((0, table.num_rows))
        )
    stamps = np.concatenate(at)
    number = np.floor((stamps - begin) / interval_s).astype(np.int64)
    order = np.lexsort((stamps, number))
    values = np.concatenate(blocks, axis=1)[:, order]
    return _Loaded(source, stamps[order], np.concatenate(row)[order], values, number[order])


def _rows_of(table: pa.Table, source: _Source) -> NDArray[np.int64]:
    keys = zip(*key_lists(table, source.schema.entity_kind), strict=True)
    return np.fromiter((source.row_of[key] for key in keys), dtype=np.int64, count=table.num_rows)


def _source(
    kind: EntityKind, files: Sequence[Path], keys: Sequence[Keys], nodes: Sequence[str]
) -> _Source:
    have = {name for path in files for name in column_names(path)}
    known = [m.name for m in metrics_of(kind) if RECORDED[m.name].column in have]
    node_row = {node: row for row, node in enumerate(nodes)}
    wire = ["/".join(part for part in key[1:] if part) for key in keys]
    fleet = (
        wire if kind is EntityKind.GPU else ["/".join(part for part in key if part) for key in keys]
    )
    return _Source(
        schema=schema_for(kind, known),
        files=tuple(files),
        keys=tuple(fleet),
        wire_keys=tuple(wire),
        node_of=np.array([node_row[key[0]] for key in keys], dtype=np.int64),
        row_of={key: row for row, key in enumerate(keys)},
    )


def _no_metrics(folder: Path) -> str:
    if any((folder / "metrics").glob("*.om*")):
        return (
            f"{folder / 'metrics'} holds OpenMetrics text only, which this command cannot read:"
            " write the Parquet form (metrics/gpu*.parquet)"
        )
    return (
        f"{folder}: no metrics/gpu*.parquet in it, so it is not a recording;"
        f" make one with `gpuwarden simulate --out {folder}`"
    )


def _read_description(path: Path) -> Description:
    if not path.exists():
        return Description()
    try:
        described = msgspec.json.decode(path.read_bytes(), type=Description)
    except msgspec.DecodeError as error:
        raise RecordingError(f"{path}: {error}; mend it, or delete it: it is optional") from error
    if described.version != 1 or described.format != "gpuwarden-recording":
        raise RecordingError(
            f"{path}: format {described.format!r} version {described.version};"
            " this command reads gpuwarden-recording version 1"
        )
    return described
