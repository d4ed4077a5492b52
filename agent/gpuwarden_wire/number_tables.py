"""Tables of `NumberRow`s: packed without a Python object's worth of work for each cell."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite, nan
from operator import itemgetter

from gpuwarden_wire.batches import MissingCell, Table, missing_cell
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.readings import NotSupported
from gpuwarden_wire.schema import Schema

_KEPT_AT_MOST = 64
_ABSENT = NotSupported()


@dataclass(frozen=True, slots=True)
class _Form:
    """How rows of certain layouts become a table of a schema.

    Attributes:
        numbers: Takes the numbers of all rows, one row behind the other, out of their bytes.
        pick: From these, and NaN behind them, to the cells column after column.
        f32, f64: The cells as they go on the wire.
        f32_cells: How many of them are f32; they come first.
        missing: Cells without a number.
    """

    numbers: struct.Struct
    pick: Callable[[tuple[float, ...]], tuple[float, ...]]
    f32: struct.Struct
    f64: struct.Struct
    f32_cells: int
    missing: tuple[MissingCell, ...]


class NumberPacker:
    """Packs rows, and keeps what it found out of their layouts. Not thread-safe."""

    def __init__(self) -> None:
        self._forms: dict[tuple[str, tuple[RowLayout, ...]], _Form] = {}

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
        form = self._form(schema, tuple([row.layout for row in numbered]))
        numbers = form.numbers.unpack(b"".join([row.numbers for row in numbered]))
        if not isfinite(sum(numbers)):
            return None  # which of them is not, and why, is told there
        cells = form.pick((*numbers, nan))
        try:
            f32 = form.f32.pack(*cells[: form.f32_cells])
        except OverflowError:
            return None  # more than a float32 holds
        return Table(
            schema=schema.hash,
            observed_at=observed_at,
            entities=tuple(rows),
            f32=f32,
            f64=form.f64.pack(*cells[form.f32_cells :]),
            missing=form.missing,
        )

    def _form(self, schema: Schema, layouts: tuple[RowLayout, ...]) -> _Form:
        key = schema.hash, layouts
        known = self._forms.get(key)
        if known is None:
            if len(self._forms) >= _KEPT_AT_MOST:
                self._forms.clear()
            known = self._forms[key] = _find_form(schema, layouts)
        return known


def _find_form(schema: Schema, layouts: Sequence[RowLayout]) -> _Form:
    *begins, behind = accumulate((len(one.names) for one in layouts), initial=0)
    places = [
        behind if (place := layout.places.get(name)) is None else begin + place
        for name in schema.names
        for begin, layout in zip(begins, layouts, strict=True)
    ]
    f32_cells = schema.f32_count * len(layouts)
    return _Form(
        numbers=struct.Struct(f"={behind}d"),
        pick=itemgetter(*places),
        f32=struct.Struct(f"<{f32_cells}f"),
        f64=struct.Struct(f"<{len(places) - f32_cells}d"),
        f32_cells=f32_cells,
        missing=_find_missing(schema, layouts),
    )


def _find_missing(schema: Schema, layouts: Sequence[RowLayout]) -> tuple[MissingCell, ...]:
    """Column after column."""
    return tuple(
        missing_cell(row, column, layout.missing.get(name, _ABSENT))
        for column, name in enumerate(schema.names)
        for row, layout in enumerate(layouts)
        if name not in layout.places
    )
