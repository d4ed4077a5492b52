"""The metrics of a recording in their two forms."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from math import isnan
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpuwarden_models.names import KEY_COLUMNS, RecordedName
from gpuwarden_wire.metrics import EntityKind

_ROWS_PER_PART = 250_000
_NUMBERS_PER_PART = 2_000_000
_COMPRESSION = 3  # text of numbers: higher levels take four times as long for a tenth less

_Parquet: TypeAlias = dict[str, pa.Array]
_Entity: TypeAlias = tuple[str, ...]


class Form(StrEnum):
    """How a recording has its metrics."""

    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"
    BOTH = "both"


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Readings of one kind at one moment.

    Attributes:
        kind: Kind of the entities.
        at: Epoch seconds.
        entities: Values of the kind's key columns, one tuple a row.
        names: Names of the columns.
        values: In recorded units, shape (columns, rows); NaN where a reading is missing.
    """

    kind: EntityKind
    at: float
    entities: tuple[_Entity, ...]
    names: Sequence[RecordedName]
    values: NDArray[np.float64]


class MetricsWriter(Protocol):
    """Takes readings moment after moment."""

    def add(self, stretch: Stretch) -> None:
        """Take the readings of one kind at one moment."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


def make_writers(folder: Path, form: Form) -> tuple[MetricsWriter, ...]:
    """Writers of a form into a folder that is there."""
    match form:
        case Form.PARQUET:
            return (ParquetWriter(folder),)
        case Form.OPENMETRICS:
            return (OpenMetricsWriter(folder),)
        case Form.BOTH:
            return (ParquetWriter(folder), OpenMetricsWriter(folder))


class ParquetWriter:
    """One wide table a kind, in parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blocks: dict[EntityKind, list[_Parquet]] = {}
        self._rows: dict[EntityKind, int] = {}
        self._parts: dict[EntityKind, int] = {}

    def add(self, stretch: Stretch) -> None:
        """Take the readings of one kind at one moment."""
        rows, kind = len(stretch.entities), stretch.kind
        block: _Parquet = {"timestamp": pa.array(np.full(rows, stretch.at))}
        columns = zip(*stretch.entities, strict=True)
        for name, column in zip(KEY_COLUMNS[kind], columns, strict=True):
            block[name] = pa.array(column).dictionary_encode()
        for recorded, values in zip(stretch.names, stretch.values, strict=True):
            block[recorded.column] = pa.array(values)
        self._blocks.setdefault(kind, []).append(block)
        self._rows[kind] = self._rows.get(kind, 0) + rows
        if self._rows[kind] >= _ROWS_PER_PART:
            self._flush(kind)

    def close(self) -> None:
        """Write what is left."""
        for kind in tuple(self._blocks):
            self._flush(kind)

    def _flush(self, kind: EntityKind) -> None:
        blocks = self._blocks.pop(kind, [])
        part = self._parts.get(kind, 0)
        table = pa.concat_tables(pa.table(block) for block in blocks)
        path = self._folder / f"{kind}-{part:03d}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=_ROWS_PER_PART // 4)
        self._parts[kind], self._rows[kind] = part + 1, 0


class OpenMetricsWriter:
    """Text with timestamps, in parts; in each part the series of a name stand together."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Stretch] = []
        self._numbers = 0
        self._part = 0

    def add(self, stretch: Stretch) -> None:
        """Take the readings of one kind at one moment."""
        self._waiting.append(stretch)
        self._numbers += stretch.values.size
        if self._numbers >= _NUMBERS_PER_PART:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._waiting:
            self._flush()

    def _flush(self) -> None:
        path = self._folder / f"part-{self._part:03d}.om.gz"
        # No time and no name in the header: equal recordings are equal byte for byte.
        with path.open("wb") as plain, gzip.GzipFile("", "wb", _COMPRESSION, plain, 0) as file:
            for lines in _families(self._waiting):
                file.write(lines.encode())
            file.write(b"# EOF\n")
        self._part += 1
        self._waiting, self._numbers = [], 0


def _families(stretches: Sequence[Stretch]) -> Iterator[str]:
    """Lines of each name, series after series."""
    ordered = sorted(stretches, key=lambda one: (one.kind, one.at))
    for kind, group in groupby(ordered, key=lambda one: one.kind):
        same = list(group)
        for column, recorded in enumerate(same[0].names):
            yield "".join(_lines(kind, recorded, column, same))


def _lines(
    kind: EntityKind, recorded: RecordedName, column: int, stretches: Sequence[Stretch]
) -> Iterator[str]:
    tails: dict[_Entity, list[str]] = {}
    for one in stretches:
        stamp = f"{one.at:.3f}".rstrip("0").rstrip(".")  # ms: what Prometheus keeps
        for entity, value in zip(one.entities, one.values[column].tolist(), strict=True):
            if not isnan(value):
                tails.setdefault(entity, []).append(f" {value!r} {stamp}\n")
    for entity, own in sorted(tails.items()):
        head = _series(kind, recorded, entity)
        yield head + head.join(own)


def _series(kind: EntityKind, recorded: RecordedName, entity: _Entity) -> str:
    """A series as the exporters label theirs; `job` says which exporter it is."""
    names = ["UUID" if name == "gpu_uuid" else name for name in KEY_COLUMNS[kind]]
    labels = dict(zip(names, entity, strict=True))
    if recorded.split[1]:
        labels[recorded.split[0]] = recorded.split[1]
    labels["job"] = recorded.name.partition("_")[0].lower()
    told = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{recorded.name}{{{told}}}"
