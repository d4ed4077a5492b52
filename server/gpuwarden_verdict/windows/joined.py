"""The tables of a batch in one piece: what is done for each table is then done once a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuwarden_wire.batches import MissingCell, Table
from gpuwarden_wire.schema import Schema

Missing = tuple[tuple[MissingCell, ...], ...]

_NARROW_BYTES, _WIDE_BYTES = 4, 8


@dataclass(frozen=True, slots=True, eq=False)
class TableLayout:
    """Which tables a batch has; one object for all batches of a node that have the same.

    Attributes:
        schemas: Columns of each.
        hashes: Their names on the wire.
        entities: Who is in each.
        narrow: Where each table's float32 numbers begin among all of the batch, and the end.
        wide: The same of the float64 numbers.
        alike: Equal of layouts with the same schemas and as many entities in each.
        cells: Number of cells.
    """

    schemas: tuple[Schema, ...]
    hashes: tuple[str, ...]
    entities: tuple[tuple[str, ...], ...]
    narrow: tuple[int, ...]
    wide: tuple[int, ...]
    alike: tuple[tuple[int, int], ...]
    cells: int


class JoinedTables(NamedTuple):
    """The tables of one batch; a tuple, since one is made for each.

    Attributes:
        layout: Which tables.
        times: When each was observed, epoch seconds.
        f32: Their blocks of float32 numbers, one after the other.
        f64: Their blocks of float64 numbers.
        missing: Reasons of missing cells, table by table; () where no table has any.
    """

    layout: TableLayout
    times: tuple[float, ...]
    f32: bytes
    f64: bytes
    missing: Missing = ()

    def tables(self) -> list[Table]:
        """The tables one by one."""
        layout = self.layout
        return [
            Table(
                schema=name,
                observed_at=self.times[number],
                entities=layout.entities[number],
                f32=self.f32[_between(layout.narrow, number, _NARROW_BYTES)],
                f64=self.f64[_between(layout.wide, number, _WIDE_BYTES)],
                missing=self.missing[number] if self.missing else (),
            )
            for number, name in enumerate(layout.hashes)
        ]


def layout_of(
    schemas: Sequence[Schema], hashes: Sequence[str], entities: Sequence[tuple[str, ...]]
) -> TableLayout:
    """The layout of some tables."""
    narrow, wide = [0], [0]
    for schema, own in zip(schemas, entities, strict=True):
        narrow.append(narrow[-1] + schema.f32_count * len(own))
        wide.append(wide[-1] + (len(schema.columns) - schema.f32_count) * len(own))
    return TableLayout(
        schemas=tuple(schemas),
        hashes=tuple(hashes),
        entities=tuple(entities),
        narrow=tuple(narrow),
        wide=tuple(wide),
        alike=tuple((id(s), len(own)) for s, own in zip(schemas, entities, strict=True)),
        cells=narrow[-1] + wide[-1],
    )


def join_tables(tables: Sequence[tuple[Schema, Table, float]]) -> JoinedTables:
    """Tables as one piece: the columns of each, the table, and when it was observed."""
    parts = [table for _, table, _ in tables]
    layout = layout_of(
        [schema for schema, _, _ in tables],
        [part.schema for part in parts],
        [part.entities for part in parts],
    )
    return join_as(layout, parts, tuple(observed_at for _, _, observed_at in tables))


def join_as(layout: TableLayout, tables: Sequence[Table], times: tuple[float, ...]) -> JoinedTables:
    """Tables that a layout fits as one piece."""
    reasons = [table.missing for table in tables]
    return JoinedTables(
        layout,
        times,
        b"".join([table.f32 for table in tables]),
        b"".join([table.f64 for table in tables]),
        tuple(reasons) if any(reasons) else (),
    )


def _between(places: tuple[int, ...], number: int, size: int) -> slice:
    return slice(places[number] * size, places[number + 1] * size)
