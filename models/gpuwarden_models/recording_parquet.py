"""Parquet files of a recording: one row an entity and moment, one column a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpuwarden_exporters.node import node_meaning
from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording_series import (
    STAND_IN_UUID,
    STAND_INS,
    Block,
    Catalogue,
    Entity,
    Floats,
    Rows,
    Span,
    gpu_key,
    name_meaning,
)
from gpuwarden_models.recording_tables import RecordingError
from gpuwarden_models.recording_times import check_times
from gpuwarden_wire.metrics import EntityKind

_SPLIT_LABELS = ("operation", "job", "nvlink", "controller", "xid")
_OPTIONAL = ("port", "export")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that means something: its channels, each with the value that labels alone give."""

    name: str
    channels: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _File:
    """One file.

    Attributes:
        path: Where.
        kind: Kind of entity.
        columns: Columns that mean something.
        filters: Whether its times can be compared as they are stored.
        first: Epoch seconds of its first row.
        last: Of its last row.
        rows: Provisional row by kind and entity; of the file's own kind, and of the nodes.
    """

    path: Path
    kind: EntityKind
    columns: tuple[_Column, ...]
    filters: bool
    first: float
    last: float
    rows: Mapping[tuple[EntityKind, tuple[str, ...]], int]


class ParquetSource:
    """All Parquet files of a recording."""

    def __init__(self, files: Mapping[EntityKind, Sequence[Path]]) -> None:
        self._paths = files
        self._files: list[_File] = []
        self._catalogue: Catalogue | None = None

    def survey(self, catalogue: Catalogue) -> Span | None:
        """Look over names, keys and times of every file."""
        self._catalogue = catalogue
        for kind, paths in self._paths.items():
            self._files += (one for path in paths if (one := _survey(path, kind, catalogue)))
        if not self._files:
            return None
        return Span(
            min(file.first for file in self._files),
            max(file.last for file in self._files),
            sum(len(file.rows) * len(file.columns) for file in self._files),
        )

    def blocks(self, begin: float, until: float) -> list[Block]:
        """Samples of a stretch of time."""
        found: list[Block] = []
        for file in self._files:
            if file.first < until and file.last >= begin:
                found += self._read(file, begin, until)
        return found

    def _read(self, file: _File, begin: float, until: float) -> list[Block]:
        wanted = [("timestamp", ">=", begin), ("timestamp", "<", until)] if file.filters else None
        keys = _key_names(file.path, file.kind)
        names = [column.name for column in file.columns]
        table = read_parquet(file.path, ["timestamp", *keys, *names], wanted)
        at = _times(file.path, table)
        inside = (at >= begin) & (at < until)
        entity, which = _entities(table, keys)
        rows = {
            kind: np.array([file.rows.get((kind, one), -1) for one in entity], dtype=np.int64)
            for kind in {file.kind, EntityKind.NODE}
        }
        found: list[Block] = []
        for column in file.columns:
            value = _numbers(file.path, table, column.name)
            for channel, constant in column.channels:
                row = rows[self._kind_of(channel)][which]
                there = inside & ~np.isnan(value) & (row >= 0)
                kept = value[there] if np.isnan(constant) else np.full(there.sum(), constant)
                found.append(Block(channel, row[there], at[there], kept))
        return found

    def _kind_of(self, channel: int) -> EntityKind:
        assert self._catalogue is not None  # blocks come after the survey
        return self._catalogue.channels[channel].kind


def _survey(path: Path, kind: EntityKind, catalogue: Catalogue) -> _File | None:
    keys = _key_names(path, kind)
    columns = _known_columns(path, kind, catalogue)
    table = read_parquet(path, ["timestamp", *keys], None)
    if table.num_rows == 0:
        return None
    at = _times(path, table)
    check_times(at, lambda row: f"{path}, row {row + 1}")
    entities, which = _entities(table, keys)
    of_kinds = {catalogue.channels[number].kind for one in columns for number, _ in one.channels}
    rows: dict[tuple[EntityKind, tuple[str, ...]], int] = {}
    for number, entity in enumerate(entities):
        named = dict(zip(keys, entity, strict=True))
        for needed in ("node", "gpu_uuid"):
            if needed in named and not named[needed]:
                first = int(np.flatnonzero(which == number)[0]) + 1
                raise RecordingError(
                    f"{path}, row {first}: names no {needed}; fill it in, or take the row out"
                )
        if EntityKind.NODE in of_kinds:
            rows[(EntityKind.NODE, entity)] = catalogue.row(EntityKind.NODE, (named["node"], ""))
        if kind is not EntityKind.NODE and (own := _entity(kind, named)) is not None:
            rows[(kind, entity)] = catalogue.row(kind, own)
    numeric = pa.types.is_floating(table["timestamp"].type)
    return _File(path, kind, columns, numeric, float(at.min()), float(at.max()), rows)


def _known_columns(path: Path, kind: EntityKind, catalogue: Catalogue) -> tuple[_Column, ...]:
    found: list[_Column] = []
    for name in column_names(path):
        bare, _, suffix = name.partition(":")
        labels = {**STAND_INS[kind], "UUID": STAND_IN_UUID, "job": ""}
        labels |= dict.fromkeys(_SPLIT_LABELS, suffix) if suffix else {}
        meaning = name_meaning(bare, labels)
        channels = tuple(
            (number, np.nan if target is None or target.constant is None else target.constant)
            for number, target in catalogue.channels_of(meaning, bare)
            if catalogue.channels[number].kind in (kind, EntityKind.NODE)
        )
        if channels:
            found.append(_Column(name, channels))
    return tuple(found)


def _entity(kind: EntityKind, named: Mapping[str, str]) -> Entity | None:
    """The entity that key columns name; None for software interfaces and parts of disks."""
    node, device = named["node"], named.get("device", "")
    match kind:
        case EntityKind.GPU:
            uuid = gpu_key(named["gpu_uuid"])
            return (node, uuid) if uuid else None
        case EntityKind.MOUNT:
            return node, named.get("mountpoint") or named.get("export", "")
        case EntityKind.DISK:
            return (node, device) if node_meaning("node_disk_io_now", dict(named)).targets else None
        case _:
            port = named.get("port", "")
            if port:
                return node, f"{device}/{port}"
            known = node_meaning("node_network_carrier", dict(named)).targets
            return (node, device) if known else None


def _key_names(path: Path, kind: EntityKind) -> list[str]:
    have = set(column_names(path))
    return [name for name in KEY_COLUMNS[kind] if name in have or name not in _OPTIONAL]


def _entities(table: pa.Table, keys: Sequence[str]) -> tuple[list[tuple[str, ...]], Rows]:
    """The different entities of a table, and which of them each row names."""
    code: Rows = np.zeros(table.num_rows, dtype=np.int64)
    words: list[list[str]] = []
    for name in keys:
        # As strings, since parts may have different dictionaries.
        plain = pc.fill_null(table[name].cast(pa.string()), "").combine_chunks()
        encoded = plain.dictionary_encode()
        words.append([str(word) for word in encoded.dictionary.to_pylist()])
        code = code * max(len(words[-1]), 1) + encoded.indices.to_numpy().astype(np.int64)
    different, which = np.unique(code, return_inverse=True)
    entities: list[tuple[str, ...]] = []
    for number in different.tolist():
        entity: list[str] = []
        for known in reversed(words):
            number, place = divmod(number, max(len(known), 1))
            entity.append(known[place])
        entities.append(tuple(reversed(entity)))
    return entities, which.reshape(-1).astype(np.int64)


def _times(path: Path, table: pa.Table) -> Floats:
    """Epoch seconds of each row, NaN where it has none."""
    stamps = table["timestamp"]
    factor = 1.0
    try:
        if pa.types.is_string(stamps.type) or pa.types.is_large_string(stamps.type):
            plain = pc.cast(pc.utf8_rtrim(stamps, "Z"), pa.timestamp("us"))
            stamps = pc.assume_timezone(plain, "UTC")
        if pa.types.is_timestamp(stamps.type):
            stamps, factor = stamps.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1e-6
        seconds: Floats = stamps.cast(pa.float64()).to_numpy().astype(np.float64) * factor
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise RecordingError(
            f"{path}: column timestamp is of type {stamps.type} ({_first_line(error)});"
            " write epoch seconds (float64) or ISO 8601 in UTC"
        ) from error
    return seconds


def _numbers(path: Path, table: pa.Table, name: str) -> NDArray[np.float64]:
    try:
        values = table[name].cast(pa.float64()).to_numpy()
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise RecordingError(
            f"{path}: column {name} is of type {table[name].type}, not numbers"
            f" ({_first_line(error)}); write float64, NaN where a reading is missing"
        ) from error
    numbers: NDArray[np.float64] = values.astype(np.float64)
    return numbers


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
    return RecordingError(
        f"{path}: not a readable Parquet file ({_first_line(error)});"
        " write it again, or move it out of the recording"
    )


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def files_of(folder: Path, kind: EntityKind) -> tuple[Path, ...]:
    """Parquet files of a kind in a recording, in order of name."""
    return tuple(sorted((folder / "metrics").glob(f"{kind}*.parquet")))
