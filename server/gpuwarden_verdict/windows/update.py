"""Tables of readings into the planes: many nodes at once, NaN safe, reset guarded.

Nearly every cell is regular: a number, one reading after another number. Those are folded as whole
blocks, with one step a row and lane. The rest, which must not cost them anything, is folded cell by
cell (`cells`) from what stood there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpuwarden_verdict.windows.cells import Cells, fold_cells
from gpuwarden_verdict.windows.joined import JoinedTables
from gpuwarden_verdict.windows.lanes import SectionColumns
from gpuwarden_verdict.windows.planes import (
    DAY_S,
    F32,
    F64,
    FAST_S,
    HOUR_S,
    I64,
    NEVER,
    NOT_SUPPORTED,
    NUMBER,
    SLOW_S,
    STALE,
    U8,
    UNAVAILABLE,
    AnyArray,
    Bool,
    KindPlanes,
    Section,
)
from gpuwarden_wire.batches import MissingCell, MissingKind
from gpuwarden_wire.metrics import EntityKind, Storage
from gpuwarden_wire.schema import Schema

_CODES = {
    MissingKind.NOT_SUPPORTED: NOT_SUPPORTED,
    MissingKind.UNAVAILABLE: UNAVAILABLE,
    MissingKind.STALE: STALE,
}


@dataclass(frozen=True, slots=True)
class Readings:
    """Tables of one schema, their rows one after the other; no row comes twice.

    Attributes:
        schema: Columns.
        rows: Rows of the entities, int64, shape (R,).
        at: When each was read, epoch seconds, float64, shape (R,).
        narrow: float32 columns, shape (R, f32 columns), in the metrics' units.
        wide: Counters, float64, shape (R, counter columns).
        reasons: Why cells are no numbers, by (row, column) in here; others are unavailable.
    """

    schema: Schema
    rows: I64
    at: F64
    narrow: F32
    wide: F64
    reasons: dict[tuple[int, int], int]

    def only(self, keep: Bool) -> Readings:
        """Some of the rows."""
        place = {row: number for number, row in enumerate(np.flatnonzero(keep).tolist())}
        reasons = {
            (place[row], column): code
            for (row, column), code in self.reasons.items()
            if row in place
        }
        return Readings(
            self.schema,
            self.rows[keep],
            self.at[keep],
            self.narrow[keep],
            self.wide[keep],
            reasons,
        )


class ReadTable(NamedTuple):
    """One table as it came over the wire, its entities known.

    A tuple, since one is made for each table of each batch.

    Attributes:
        kind: Kind of the entities.
        rows: Their rows, int64, shape (n,); -1 is skipped; no other comes twice.
        schema: Columns, float32 first.
        f32: Little-endian float32, column after column, f32 columns x n numbers.
        f64: Little-endian float64 of the counters, column after column.
        missing: Reasons of NaN cells.
        observed_at: Epoch seconds.
    """

    kind: EntityKind
    rows: I64
    schema: Schema
    f32: bytes
    f64: bytes
    missing: Sequence[MissingCell]
    observed_at: float


def stack_tables(tables: Sequence[ReadTable]) -> Readings:
    """Tables of one schema and as many rows each, as one; rows of unknown entities left out.

    NaN and infinities are no numbers; without a reason they count as unavailable. A reason that
    points outside its table is ignored.
    """
    schema, count = tables[0].schema, tables[0].rows.size
    reasons = {
        (number * count + cell.row, cell.column): _CODES[cell.kind]
        for number, table in enumerate(tables)
        for cell in table.missing
        if 0 <= cell.row < count and 0 <= cell.column < len(schema.columns)
    }
    readings = Readings(
        schema,
        np.concatenate([table.rows for table in tables]),
        np.repeat([table.observed_at for table in tables], count),
        _entity_major([table.f32 for table in tables], "<f4", count),
        _entity_major([table.f64 for table in tables], "<f8", count),
        reasons,
    )
    known = readings.rows >= 0
    return readings if known.all() else readings.only(known)


def stack_joined(
    batches: Sequence[JoinedTables], rows: Sequence[Sequence[I64]]
) -> Iterator[tuple[EntityKind, Readings]]:
    """Batches of layouts that are alike, table by table.

    Args:
        batches: Of several nodes.
        rows: Of each batch, the rows of each table's entities; all are known.
    """
    layout = batches[0].layout
    narrow = np.frombuffer(b"".join([one.f32 for one in batches]), "<f4")
    wide = np.frombuffer(b"".join([one.f64 for one in batches]), "<f8")
    narrow, wide = (
        all_of.reshape(len(batches), -1) if all_of.size else all_of.reshape(len(batches), 0)
        for all_of in (narrow, wide)
    )
    for number, schema in enumerate(layout.schemas):
        count = len(layout.entities[number])
        if count and schema.columns:
            yield (
                schema.entity_kind,
                Readings(
                    schema,
                    np.concatenate([own[number] for own in rows]),
                    np.repeat([one.times[number] for one in batches], count),
                    _by_entity(narrow[:, slice(*layout.narrow[number : number + 2])], count),
                    _by_entity(wide[:, slice(*layout.wide[number : number + 2])], count),
                    _reasons(batches, number, count),
                ),
            )


def _by_entity(numbers: AnyArray, count: int) -> AnyArray:
    """One table's numbers, column after column in each batch, as rows of entities."""
    nodes, columns = numbers.shape[0], numbers.shape[1] // count
    by_row = numbers.reshape(nodes, columns, count).transpose(0, 2, 1)
    return by_row.reshape(nodes * count, columns)


def _reasons(
    batches: Sequence[JoinedTables], number: int, count: int
) -> dict[tuple[int, int], int]:
    return {
        (place * count + cell.row, cell.column): _CODES[cell.kind]
        for place, one in enumerate(batches)
        if one.missing
        for cell in one.missing[number]
    }


def _entity_major(blocks: Sequence[bytes], dtype: str, count: int) -> AnyArray:
    """Blocks of column after column as rows of entities."""
    numbers = np.frombuffer(b"".join(blocks), dtype)
    if not numbers.size:
        return np.empty((len(blocks) * count, 0), dtype)
    columns = numbers.size // (len(blocks) * count)
    by_row = numbers.reshape(len(blocks), columns, count).transpose(0, 2, 1)
    return by_row.reshape(len(blocks) * count, columns)


def apply_readings(planes: KindPlanes, readings: Readings) -> int:
    """Fold readings into the planes.

    Returns:
        Rows left out because a later reading of one of their columns is already there.
    """
    if not readings.schema.columns or readings.rows.size == 0:
        return 0
    plan = planes.plan_of(readings.schema)
    sides = (
        (planes.narrow, plan.narrow, readings.narrow, 0),
        (planes.wide, plan.wide, readings.wide, readings.narrow.shape[1]),
    )
    late = np.zeros(readings.rows.size, np.bool_)
    for section, columns, _, _ in sides:
        if columns is not None:
            known = section.lane_at[readings.rows[:, None], columns.lanes]
            late |= (known > readings.at[:, None]).any(axis=1)
    if late.any():
        apply_readings(planes, readings.only(~late))
        return int(late.sum())
    with np.errstate(all="ignore"):
        for section, columns, values, first in sides:
            if columns is not None:
                _fold(section, columns, _Part(readings, values, first))
    seen = planes.last_seen_at
    seen[readings.rows] = np.fmax(seen[readings.rows], readings.at)
    planes.changes += 1
    return 0


@dataclass(frozen=True, slots=True)
class _Part:
    """What one section gets: `values` (R, C), whose columns begin at `first` in the schema."""

    readings: Readings
    values: AnyArray
    first: int

    def codes(self, row: I64, column: I64) -> U8:
        """Why some cells are no numbers."""
        if not self.readings.reasons:
            return np.full(row.size, UNAVAILABLE, np.uint8)
        found = np.full(self.values.shape, UNAVAILABLE, np.uint8)
        wide = len(self.values.T)
        for (at, number), code in self.readings.reasons.items():
            if 0 <= number - self.first < wide:
                found[at, number - self.first] = code
        chosen: U8 = found[row, column]
        return chosen


def _fold(section: Section, columns: SectionColumns, part: _Part) -> None:
    rows, at = part.readings.rows, part.readings.at[:, None]
    step = at - section.lane_at[rows[:, None], columns.lanes]
    block = _taken_block(section, rows, columns)
    regular = np.isfinite(part.values)
    missing = _taken(section.sides["missing"], rows, columns)
    if regular.all() and (missing == NEVER).all():
        _begin(section, columns, part)
        return
    regular &= missing == NUMBER
    regular &= _spread(step > 0.0, columns)
    if section.storage is Storage.COUNTER:  # its second number gives the first rate
        regular &= ~np.isnan(block[:, section.place["slow"]])
    odd = None if regular.all() else _fold_odd(section, columns, part, step, block, regular)
    _fold_block(section, columns, part, step, block, regular)
    if odd is not None:
        block[odd.row, :, odd.column] = odd.after.block
    _put_block(section, rows, columns, block)
    if odd is not None:
        odd.put(section, rows, columns)
    section.lane_at[rows[:, None], columns.lanes] = at


def _begin(section: Section, columns: SectionColumns, part: _Part) -> None:
    """Fold cells of which each gets its first number: all of them, as a new node's are."""
    rows, values = part.readings.rows, part.values
    block = np.zeros((rows.size, len(section.planes), values.shape[1]), np.float32)
    is_counter = section.storage is Storage.COUNTER
    levels = ("highest",) if is_counter else ("fast", "slow", "highest", "number")
    for name in levels:
        block[:, section.place[name]] = values
    if is_counter:  # its second number gives the first rate
        for name in ("fast", "slow", "variance"):
            block[:, section.place[name]] = np.nan
        _put(section.sides["total"], rows, columns, values)
    _put_block(section, rows, columns, block)
    for name in ("missing", "behind"):
        _put(section.sides[name], rows, columns, np.zeros(values.shape, section.sides[name].dtype))
    section.lane_at[rows[:, None], columns.lanes] = part.readings.at[:, None]


@dataclass(frozen=True, slots=True)
class _Odd:
    """Cells that are not regular: where they are in the part, and what they become."""

    row: I64
    column: I64
    codes: U8
    after: Cells

    def put(self, section: Section, rows: I64, columns: SectionColumns) -> None:
        """Write what stands beside the block."""
        place = rows[self.row], columns.slots[self.column]
        section.sides["missing"][place] = self.codes
        section.sides["behind"][place] = self.after.behind
        if section.storage is Storage.COUNTER:
            section.sides["total"][place] = self.after.total
            section.sides["resets"][place] = self.after.resets


def _fold_odd(
    section: Section,
    columns: SectionColumns,
    part: _Part,
    step: F64,
    block: F32,
    regular: Bool,
) -> _Odd:
    """Fold the cells that are not regular, from what stood there before."""
    row, column = np.nonzero(~regular)
    place = part.readings.rows[row], columns.slots[column]
    values = part.values[row, column]
    codes = np.where(np.isfinite(values), np.uint8(NUMBER), part.codes(row, column))
    own = block[row, :, column]
    counts = section.storage is Storage.COUNTER
    before = Cells(
        storage=section.storage,
        place=section.place,
        block=own,
        total=section.sides["total"][place] if counts else own[:, section.place["number"]],
        behind=section.sides["behind"][place],
        resets=section.sides["resets"][place] if counts else np.zeros(row.size, np.float32),
    )
    lane = np.zeros(column.size, np.int64) if columns.lane_of is None else columns.lane_of[column]
    return _Odd(row, column, codes, fold_cells(before, values, codes, step[row, lane]))


def _fold_block(
    section: Section,
    columns: SectionColumns,
    part: _Part,
    step: F64,
    block: F32,
    regular: Bool,
) -> None:
    """Fold the regular cells in place; the odd ones get nonsense and are put right later."""
    planes = dict(zip(section.planes, block.transpose(1, 0, 2), strict=True))
    seconds = _spread(step.astype(np.float32), columns)
    values = part.values
    level: AnyArray = values
    if section.storage is Storage.COUNTER:
        growth, changed = _growth(section, columns, part, regular)
        for name, constant in (("increment_1h", HOUR_S), ("increment_24h", DAY_S)):
            planes[name] *= _decay(step, constant, columns)
            np.add(planes[name], growth, out=planes[name], casting="same_kind")
        growth /= _spread(step, columns)
        level = growth.astype(np.float32)
    else:
        changed = values != planes["number"]
        planes["number"][...] = values
    _fold_means(planes, level, step, columns)
    planes["coverage"] *= _decay(step, HOUR_S, columns)
    planes["coverage"] += seconds
    planes["steady"] += seconds
    planes["steady"][changed] = 0.0
    np.fmax(planes["highest"], values, out=planes["highest"], casting="same_kind")


def _growth(
    section: Section, columns: SectionColumns, part: _Part, regular: Bool
) -> tuple[F64, Bool]:
    """Growth of counters since the number before, which the new one replaces; who changed."""
    rows, total = part.readings.rows, section.sides["total"]
    growth: F64 = part.values - _taken(total, rows, columns)
    changed = growth != 0.0
    back = growth < 0.0
    if back.any():
        # what a counter that was reset shows has happened since, as in PromQL increase()
        np.copyto(growth, part.values, where=back)
        row, column = np.nonzero(back & regular)
        section.sides["resets"][rows[row], columns.slots[column]] += 1.0
    _put(total, rows, columns, part.values)
    return growth, changed


def _fold_means(
    planes: dict[str, F32], level: AnyArray, step: F64, columns: SectionColumns
) -> None:
    weight = _spread(-np.expm1(step / -SLOW_S), columns).astype(np.float32)
    off = level - planes["slow"]
    moved = off * weight
    planes["slow"] += moved
    moved *= off
    planes["variance"] += moved
    planes["variance"] *= 1.0 - weight
    np.subtract(level, planes["fast"], out=off)
    off *= _spread(-np.expm1(step / -FAST_S), columns).astype(np.float32)
    planes["fast"] += off


def _decay(step: F64, constant: float, columns: SectionColumns) -> F32:
    return _spread(np.exp(step / -constant).astype(np.float32), columns)


def _spread(by_lane: AnyArray, columns: SectionColumns) -> AnyArray:
    """From lanes to columns; one lane is broadcast."""
    return by_lane if columns.lane_of is None else by_lane[:, columns.lane_of]


def _taken(side: AnyArray, rows: I64, columns: SectionColumns) -> AnyArray:
    if columns.run is not None:
        return side[rows, columns.run]
    return side[rows[:, None], columns.slots]


def _put(side: AnyArray, rows: I64, columns: SectionColumns, new: AnyArray) -> None:
    if columns.run is not None:
        side[rows, columns.run] = new
    else:
        side[rows[:, None], columns.slots] = new


def _taken_block(section: Section, rows: I64, columns: SectionColumns) -> F32:
    if columns.run is not None:
        return section.block[rows, :, columns.run]
    return np.ascontiguousarray(section.block[rows][:, :, columns.slots])


def _put_block(section: Section, rows: I64, columns: SectionColumns, new: F32) -> None:
    if columns.run is not None:
        section.block[rows, :, columns.run] = new
        return
    whole = section.block[rows]
    whole[:, :, columns.slots] = new
    section.block[rows] = whole
