"""Tables of `NumberRow`s: packed without a Python object's worth of work for each cell."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from itertools import chain
from math import hypot, isfinite, nan
from operator import itemgetter
from typing import Any

from gpuwarden_wire.batches import MissingCell, Table, little_endian, missing_cell
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.readings import NotSupported
from gpuwarden_wire.schema import Schema

_KEPT_AT_MOST = 64
_ABSENT = NotSupported()

Pick = Callable[[tuple[float, ...]], tuple[float, ...]]
"""From the numbers of a row, and NaN behind them, to a schema's columns."""


class NumberPacker:
    """Packs rows, and keeps what it found out of their layouts. Not thread-safe."""

    def __init__(self) -> None:
        self._picks: dict[tuple[str, RowLayout], Pick] = {}
        self._missing: dict[tuple[str, tuple[RowLayout, ...]], tuple[MissingCell, ...]] = {}

    def pack(self, schema: Schema, observed_at: float, rows: Mapping[str, object]) -> Table | None:
        """The same table as `pack_table` makes; None where that has to make it.

        Args:
            schema: Columns; each name of a row with a number, or a reason, stands among them.
            observed_at: Epoch seconds.
            rows: By entity key; of any kind, but only those of numbers are packed here.
        """
        numbered = [row for row in rows.values() if type(row) is NumberRow]
        if len(numbered) < len(rows) or len(schema.columns) < 2:
            return None
        if not all(isfinite(hypot(*row.numbers)) for row in numbered):
            return None  # which of them is not, and why, is told there
        picked = [self._pick(schema, row.layout)((*row.numbers, nan)) for row in numbered]
        cells = list(chain.from_iterable(zip(*picked, strict=True)))
        counters_from = schema.f32_count * len(rows)
        return Table(
            schema=schema.hash,
            observed_at=observed_at,
            entities=tuple(rows),
            f32=little_endian(array("f", cells[:counters_from])),
            f64=little_endian(array("d", cells[counters_from:])),
            missing=self._missing_cells(schema, tuple(row.layout for row in numbered)),
        )

    def _pick(self, schema: Schema, layout: RowLayout) -> Pick:
        key = schema.hash, layout
        known = self._picks.get(key)
        if known is None:
            _bound(self._picks)
            behind = len(layout.names)
            known = itemgetter(*(layout.places.get(name, behind) for name in schema.names))
            self._picks[key] = known
        return known

    def _missing_cells(
        self, schema: Schema, layouts: tuple[RowLayout, ...]
    ) -> tuple[MissingCell, ...]:
        key = schema.hash, layouts
        known = self._missing.get(key)
        if known is None:
            _bound(self._missing)
            known = self._missing[key] = _find_missing(schema, layouts)
        return known


def _find_missing(schema: Schema, layouts: Sequence[RowLayout]) -> tuple[MissingCell, ...]:
    """Column after column."""
    return tuple(
        missing_cell(row, column, layout.missing.get(name, _ABSENT))
        for column, name in enumerate(schema.names)
        for row, layout in enumerate(layouts)
        if name not in layout.places
    )


def _bound(kept: MutableMapping[Any, Any]) -> None:
    if len(kept) >= _KEPT_AT_MOST:
        kept.clear()
