"""Parquet files of a recording, read with errors that name the file and the mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording_tables import RecordingError
from gpuwarden_wire.metrics import EntityKind

Keys: TypeAlias = tuple[str, ...]


def look_over(
    files: Mapping[EntityKind, Sequence[Path]],
) -> tuple[dict[EntityKind, list[Keys]], NDArray[np.float64]]:
    """Entities of each kind in sorted order, and all different timestamps, sorted.

    Raises:
        RecordingError: A file cannot be read, or there is no row at all.
    """
    seen: dict[EntityKind, list[Keys]] = {}
    stamps = [np.empty(0)]
    for kind, paths in files.items():
        keys: set[Keys] = set()
        for path in paths:
            table = read_parquet(path, ["timestamp", *KEY_COLUMNS[kind]], None)
            keys.update(zip(*key_lists(_distinct(table, kind), kind), strict=True))
            times = table["timestamp"].to_numpy().astype(np.float64)
            stamps.append(np.unique(times[np.isfinite(times)]))
        seen[kind] = sorted(keys)
    every = np.unique(np.concatenate(stamps))
    if every.size == 0:
        raise RecordingError("the metrics have no rows: record for longer than one interval")
    return seen, every


def _distinct(table: pa.Table, kind: EntityKind) -> pa.Table:
    """The different keys of a table; as strings, since parts may have different dictionaries."""
    names = list(KEY_COLUMNS[kind])
    plain = pa.table({name: table[name].cast(pa.string()) for name in names})
    return plain.group_by(names).aggregate([])


def key_lists(table: pa.Table, kind: EntityKind) -> list[list[str]]:
    """The key columns of a kind as lists, "" where a key is null."""
    return [
        ["" if key is None else str(key) for key in table[name].to_pylist()]
        for name in KEY_COLUMNS[kind]
    ]


def column(table: pa.Table, name: str) -> NDArray[np.float64]:
    """One metric's column, all NaN where this file has none."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    values: NDArray[np.float64] = table[name].to_numpy().astype(np.float64)
    return values


def column_names(path: Path) -> list[str]:
    """Names of a file's columns.

    Raises:
        RecordingError: The file is no Parquet.
    """
    try:
        names: list[str] = pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from error
    return names


def read_parquet(
    path: Path, columns: Sequence[str], wanted: list[tuple[str, str, float]] | None
) -> pa.Table:
    """Columns of a file.

    Args:
        path: The file.
        columns: Which.
        wanted: Conditions on rows as pyarrow takes them, None for all rows.

    Raises:
        RecordingError: The file is broken or lacks a column.
    """
    missing = set(columns) - set(column_names(path))
    if missing:
        raise RecordingError(
            f"{path}: no column {', '.join(sorted(missing))}; every row needs"
            " timestamp and the columns that name its entity"
        )
    try:
        return pq.read_table(path, columns=list(columns), filters=wanted)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> RecordingError:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return RecordingError(
        f"{path}: not a readable Parquet file ({first_line});"
        " write it again, or move it out of the recording"
    )


def usual_step(stamps: NDArray[np.float64]) -> float:
    """The usual time between readings, seconds; 30 where there is one only."""
    steps = np.diff(stamps)
    return float(np.median(steps)) if steps.size else 30.0


def files_of(folder: Path, kind: EntityKind) -> tuple[Path, ...]:
    """Parquet files of a kind in a recording, in order of name."""
    return tuple(sorted((folder / "metrics").glob(f"{kind}*.parquet")))
