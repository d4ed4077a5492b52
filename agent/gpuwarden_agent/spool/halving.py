"""Halving a batch that the server, or a proxy before it, found too large."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from gpuwarden_wire.batches import Batch, MissingCell, Table
from gpuwarden_wire.codec import encode_batch
from gpuwarden_wire.schema import Schema

_F32_BYTES, _F64_BYTES = 4, 8


def halve(batch: Batch, schemas: Mapping[str, Schema]) -> tuple[Batch, Batch] | None:
    """Two batches with the content of one, in order; None where it is a single event or row."""
    if len(batch.events) > 1:
        middle = len(batch.events) // 2
        return (
            replace(batch, events=batch.events[:middle]),
            replace(batch, events=batch.events[middle:], shed=()),
        )
    if len(batch.tables) > 1:
        middle = len(batch.tables) // 2
        return (
            replace(batch, tables=batch.tables[:middle]),
            replace(batch, tables=batch.tables[middle:], shed=()),
        )
    if len(batch.tables) == 1 and len(batch.tables[0].entities) > 1:
        table = batch.tables[0]
        schema = schemas.get(table.schema)
        if schema is None:
            return None
        first, second = _halve_table(table, schema)
        return replace(batch, tables=(first,)), replace(batch, tables=(second,), shed=())
    return None


def _halve_table(table: Table, schema: Schema) -> tuple[Table, Table]:
    rows = len(table.entities)
    middle = rows // 2
    return _rows(table, schema, 0, middle), _rows(table, schema, middle, rows)


def _rows(table: Table, schema: Schema, start: int, end: int) -> Table:
    counters = len(schema.columns) - schema.f32_count
    rows = len(table.entities)
    return replace(
        table,
        entities=table.entities[start:end],
        f32=_columns(table.f32, schema.f32_count, rows, _F32_BYTES, start, end),
        f64=_columns(table.f64, counters, rows, _F64_BYTES, start, end),
        missing=tuple(
            MissingCell(cell.row - start, cell.column, cell.kind, cell.reason, cell.age_s)
            for cell in table.missing
            if start <= cell.row < end
        ),
    )


def _columns(block: bytes, columns: int, rows: int, width: int, start: int, end: int) -> bytes:
    return b"".join(
        block[(column * rows + start) * width : (column * rows + end) * width]
        for column in range(columns)
    )


def template(batch: Batch) -> bytes:
    """A batch as it lies in the store: without what is filled in when it is sent."""
    return encode_batch(replace(batch, spool_id="", seq=0, shed=(), schemas=(), more_events=False))
