"""One table of readings into the planes: vectorised, NaN safe, reset guarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuwarden_verdict.windows.planes import (
    DAY_S,
    F64,
    FAST_S,
    HOUR_S,
    I64,
    NOT_SUPPORTED,
    NUMBER,
    SLOW_S,
    STALE,
    U8,
    UNAVAILABLE,
    AnyArray,
    Bool,
    KindPlanes,
)
from gpuwarden_wire.batches import MissingCell, MissingKind
from gpuwarden_wire.metrics import Storage
from gpuwarden_wire.schema import Schema

_CODES = {
    MissingKind.NOT_SUPPORTED: NOT_SUPPORTED,
    MissingKind.UNAVAILABLE: UNAVAILABLE,
    MissingKind.STALE: STALE,
}
_Selector = tuple[AnyArray | slice, AnyArray | slice]


@dataclass(frozen=True, slots=True)
class Readings:
    """One table, its entities known: `values` float64 and `codes` uint8, shape (columns, rows)."""

    schema: Schema
    rows: I64
    values: F64
    codes: U8
    observed_at: float


def readings_of(
    schema: Schema,
    rows: I64,
    f32: AnyArray,
    f64: AnyArray,
    missing: Sequence[MissingCell],
    observed_at: float,
) -> Readings:
    """The table as one block; rows of unknown entities (-1) left out.

    NaN and infinities are no numbers; without a reason they count as unavailable. A reason that
    points outside the table is ignored.
    """
    values = np.concatenate([np.asarray(f32, np.float64), np.asarray(f64, np.float64)])
    columns, count = values.shape
    codes = np.where(np.isfinite(values), NUMBER, UNAVAILABLE).astype(np.uint8)
    for cell in missing:
        inside = 0 <= cell.row < count and 0 <= cell.column < columns
        if inside and codes[cell.column, cell.row] != NUMBER:
            codes[cell.column, cell.row] = _CODES[cell.kind]
    known = rows >= 0
    if not known.all():
        rows, values, codes = rows[known], values[:, known], codes[:, known]
    return Readings(schema, rows, values, codes, observed_at)


def apply_readings(planes: KindPlanes, readings: Readings) -> int:
    """Fold a table into the planes.

    Returns:
        Rows left out because a later reading of one of their columns is already there.
    """
    if not readings.schema.columns or readings.rows.size == 0:
        return 0
    metric_rows = _metric_rows(planes, readings.schema)
    rows, values, codes = readings.rows, readings.values, readings.codes
    cells = _cells(metric_rows, rows)
    late = (planes.by_metric["seen_at"][cells] > readings.observed_at).any(axis=0)
    if late.any():
        rows, values, codes = rows[~late], values[:, ~late], codes[:, ~late]
        cells = _cells(metric_rows, rows)
    if rows.size:
        counters = _counter_mask(readings.schema)
        _fold(planes.by_metric, cells, values, codes, counters, readings.observed_at)
        seen = planes.by_row["last_seen_at"][0]
        seen[rows] = np.fmax(seen[rows], readings.observed_at)
    return int(late.sum())


def _metric_rows(planes: KindPlanes, schema: Schema) -> AnyArray:
    """Rows of a schema's metrics, found once a schema."""
    found = planes.schema_rows.get(schema)
    if found is None:
        found = np.array([planes.metric_row(column.name) for column in schema.columns])
        planes.schema_rows[schema] = found
    return found


@lru_cache(maxsize=256)
def _counter_mask(schema: Schema) -> Bool:
    return np.array([[column.storage is Storage.COUNTER] for column in schema.columns])


def _cells(metric_rows: AnyArray, rows: AnyArray) -> _Selector:
    """Selector of a block: slices (no copy) where both sides are runs, as they mostly are."""
    first, last = _run(metric_rows), _run(rows)
    if first is not None and last is not None:
        return first, last
    return metric_rows[:, None], rows[None, :]


def _run(numbers: AnyArray) -> slice | None:
    if numbers.size == 0:
        return None
    start, stop = int(numbers[0]), int(numbers[-1]) + 1
    if stop - start != numbers.size or numbers.tolist() != list(range(start, stop)):
        return None
    return slice(start, stop)


def _fold(
    planes: dict[str, AnyArray],
    cells: _Selector,
    values: F64,
    codes: U8,
    counters: Bool,
    at: float,
) -> None:
    present = codes == NUMBER
    before, value_at = planes["number"][cells], planes["value_at"][cells]
    unseen = np.isnan(value_at)
    first = present & unseen
    step = np.where(unseen, 0.0, at - value_at)
    delta = np.where(first, 0.0, values - before)
    back = counters & present & (delta < 0.0)
    # a counter that goes back was reset: what it shows has happened since, as in PromQL increase()
    growth = np.where(back, values, delta)
    _fold_increments(planes, cells, growth, step, present & counters)
    with np.errstate(divide="ignore", invalid="ignore"):
        level = np.where(counters, growth / step, values)
    _fold_means(planes, cells, level, step, present & (~counters | (step > 0.0)))
    covered = np.fmax(planes["coverage"][cells], 0.0) * np.exp(step / -HOUR_S) + step
    _assign(planes["coverage"], cells, present, covered)
    changed = present & (first | (values != before))
    _assign(planes["changed_at"], cells, changed, at)
    _assign(planes["value_at"], cells, present, at)
    _assign(planes["number"], cells, present, values)
    planes["highest"][cells] = np.fmax(planes["highest"][cells], np.where(present, values, np.nan))
    if back.any():
        planes["resets"][cells] += back
    planes["last"][cells] = np.where(present, values, np.nan)
    planes["missing"][cells] = codes
    planes["seen_at"][cells] = at


def _fold_increments(
    planes: dict[str, AnyArray], cells: _Selector, growth: F64, step: F64, use: Bool
) -> None:
    for name, time_constant in (("increment_1h", HOUR_S), ("increment_24h", DAY_S)):
        kept = np.fmax(planes[name][cells], 0.0) * np.exp(step / -time_constant)
        _assign(planes[name], cells, use, kept + growth)


def _fold_means(
    planes: dict[str, AnyArray], cells: _Selector, level: F64, step: F64, use: Bool
) -> None:
    """Means over irregular steps: weight 1 - exp(-step / time constant); first level as it is."""
    fast, slow = planes["fast"][cells], planes["slow"][cells]
    weight = 1.0 - np.exp(-step / SLOW_S)
    young = np.isnan(slow)  # both means begin with the same reading
    off = np.where(young, 0.0, level - slow)
    spread = (1.0 - weight) * (np.fmax(planes["variance"][cells], 0.0) + weight * off * off)
    _assign(planes["variance"], cells, use, spread)
    _assign(planes["slow"], cells, use, np.where(young, level, slow + weight * off))
    ahead = (1.0 - np.exp(-step / FAST_S)) * (level - fast)
    _assign(planes["fast"], cells, use, np.where(young, level, fast + ahead))


def _assign(plane: AnyArray, cells: _Selector, use: Bool, new: AnyArray | float) -> None:
    if isinstance(cells[0], slice):  # a view: write through it
        np.copyto(plane[cells], new, where=use, casting="same_kind")
    else:
        plane[cells] = np.where(use, new, plane[cells])
