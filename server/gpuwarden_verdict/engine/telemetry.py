"""What of a telemetry batch is written: a node's own rows, at times that are none of the future."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from gpuwarden_wire.batches import Batch, Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema


class PlannedTable(NamedTuple):
    """A table ready to be applied; a tuple, since one is made for each table of each batch.

    Attributes:
        schema: Its columns.
        table: As it came, foreign rows taken out.
        observed_at: Epoch seconds, never ahead of the server by more than the tolerance.
    """

    schema: Schema
    table: Table
    observed_at: float


@dataclass(frozen=True, slots=True)
class TelemetryPlan:
    """A batch ready to be applied.

    Attributes:
        tables: In the order of the batch.
        foreign_rows: Rows taken out.
        from_future: Tables whose time was ahead and was set back to the time of receipt.
    """

    tables: tuple[PlannedTable, ...]
    foreign_rows: int
    from_future: int


def plan_telemetry(
    batch: Batch,
    schemas: Mapping[str, Schema],
    owner_of: Callable[[str], str | None],
    latest: float,
    received_at: float,
) -> TelemetryPlan:
    """What is to be written of a batch: own rows only, no times ahead.

    Args:
        batch: Checked by `check_tables`.
        schemas: By hash.
        owner_of: Node of a GPU, None unknown.
        latest: Times after this are in the future, epoch seconds.
        received_at: What they are set to: a wrong clock must not make later readings "late".

    """
    planned: list[PlannedTable] = []
    foreign = from_future = 0
    for table in batch.tables:
        schema = schemas[table.schema]
        own = _own_rows(table, schema.entity_kind, batch.node_id, owner_of)
        foreign += len(table.entities) - len(own)
        ahead = table.observed_at > latest
        from_future += ahead
        if len(own) < len(table.entities):
            table = _only_rows(table, schema, own)
        planned.append(PlannedTable(schema, table, received_at if ahead else table.observed_at))
    return TelemetryPlan(tuple(planned), foreign, from_future)


def _own_rows(
    table: Table, kind: EntityKind, node_id: str, owner_of: Callable[[str], str | None]
) -> list[int]:
    if kind is not EntityKind.GPU:
        return list(range(len(table.entities)))
    return [row for row, uuid in enumerate(table.entities) if owner_of(uuid) in (None, node_id)]


def _only_rows(table: Table, schema: Schema, own: list[int]) -> Table:
    place = {row: index for index, row in enumerate(own)}
    rows, narrow = len(table.entities), schema.f32_count
    f32 = np.frombuffer(table.f32, "<f4").reshape(narrow, rows)[:, own]
    f64 = np.frombuffer(table.f64, "<f8").reshape(len(schema.columns) - narrow, rows)[:, own]
    return msgspec.structs.replace(
        table,
        entities=tuple(table.entities[row] for row in own),
        f32=f32.tobytes(),
        f64=f64.tobytes(),
        missing=tuple(
            msgspec.structs.replace(cell, row=place[cell.row])
            for cell in table.missing
            if cell.row in place
        ),
    )
