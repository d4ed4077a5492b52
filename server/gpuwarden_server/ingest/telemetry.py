"""From a table's bytes to the columnar state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.sessions import KnownTable, NodeSession
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.windows import FleetState, ReadTable
from gpuwarden_wire.batches import Batch, Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

# A node has some hundred GPUs, ports and disks at most; more is an agent gone wild.
MAX_ENTITIES_A_NODE = 4_096
# Sets of entities whose rows a session keeps: one a kind, and a few while hardware changes.
MAX_KEPT_ROWS = 64


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """A table ready to be applied.

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


def check_entities(batch: Batch, schemas: Mapping[str, Schema], session: NodeSession) -> None:
    """Count the entities that a node names, in this batch and before.

    Raises:
        ProblemError: 400 where they are more than a node can have.
    """
    named = {(schemas[t.schema].entity_kind, entity) for t in batch.tables for entity in t.entities}
    if len(session.entities | named) > MAX_ENTITIES_A_NODE:
        raise ProblemError(
            400,
            "too_many_entities",
            f"node {batch.node_id} names more than {MAX_ENTITIES_A_NODE} entities",
            "Report it: the agent's collectors invent entities.",
        )
    session.entities |= named


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


def apply_plan(plan: TelemetryPlan, node_id: str, session: NodeSession, state: FleetState) -> int:
    """Write a planned batch into the state, whose lock the caller holds.

    Returns:
        Number of cells, missing ones included.
    """
    read = [
        ReadTable(
            part.schema.entity_kind,
            _rows_of(part, node_id, session, state),
            part.schema,
            part.table.f32,
            part.table.f64,
            part.table.missing,
            part.observed_at,
        )
        for part in plan.tables
    ]
    state.apply_batches([read])
    return sum(one.rows.size * len(one.schema.columns) for one in read)


def remember_tables(plan: TelemetryPlan, session: NodeSession, ownership: int) -> None:
    """Let the session know the tables of an applied batch, so that the next need no look.

    Args:
        plan: The batch.
        session: Of its node.
        ownership: NodeDirectory.ownership when it was planned.
    """
    if plan.foreign_rows:
        return
    if len(session.known) >= MAX_KEPT_ROWS:
        session.known.clear()
        session.table_order = ()
    for part in plan.tables:
        table = part.table
        session.known[table.schema, table.entities] = KnownTable(
            schema=part.schema,
            hash=table.schema,
            entities=table.entities,
            rows=session.rows[part.schema.entity_kind, table.entities],
            generation=session.rows_generation,
            ownership=ownership,
            f32_bytes=len(table.f32),
            f64_bytes=len(table.f64),
            cells=len(table.entities) * len(part.schema.columns),
        )


def refresh_known(
    known: KnownTable, node_id: str, owner_of: Callable[[str], str | None], ownership: int
) -> bool:
    """Whether all entities of a known table are still the node's own; notes it where they are."""
    if known.schema.entity_kind is EntityKind.GPU:
        own = (None, node_id)
        if any(owner_of(uuid) not in own for uuid in known.entities):
            return False
    known.ownership = ownership
    return True


def read_table(part: PlannedTable, known: KnownTable, node_id: str, state: FleetState) -> ReadTable:
    """A known table as the state takes it; its lock is held."""
    kind = known.schema.entity_kind
    if known.generation != state.generation:
        known.rows = _registered(kind, known.entities, node_id, state)
        known.generation = state.generation
    table = part.table
    return ReadTable(
        kind, known.rows, known.schema, table.f32, table.f64, table.missing, part.observed_at
    )


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


def _rows_of(
    part: PlannedTable, node_id: str, session: NodeSession, state: FleetState
) -> npt.NDArray[np.int64]:
    kind = part.schema.entity_kind
    key = (kind, part.table.entities)
    if session.rows_generation != state.generation or len(session.rows) >= MAX_KEPT_ROWS:
        session.forget_tables()
        session.rows_generation = state.generation
    rows = session.rows.get(key)
    if rows is None:
        rows = session.rows[key] = _registered(kind, part.table.entities, node_id, state)
    return rows


def _registered(
    kind: EntityKind, entities: Sequence[str], node_id: str, state: FleetState
) -> npt.NDArray[np.int64]:
    registered = [state.register(entity_named(kind, one, node_id)) for one in entities]
    return np.array(registered, np.int64)
