"""From a table's bytes to the columnar state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.sessions import KnownTable, NodeSession
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.engine.telemetry import PlannedTable, TelemetryPlan
from gpuwarden_verdict.windows import FleetState, ReadTable
from gpuwarden_wire.batches import Batch, Table
from gpuwarden_wire.metrics import URGENT_METRICS, EntityKind
from gpuwarden_wire.schema import Schema

# A node has some hundred GPUs, ports and disks at most; more is an agent gone wild.
MAX_ENTITIES_A_NODE = 4_096
# Sets of entities whose rows a session keeps: one a kind, and a few while hardware changes.
MAX_KEPT_ROWS = 64
_NOWHERE = ((), ())


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


def remember_tables(plan: TelemetryPlan, session: NodeSession, ownership: int) -> bool:
    """Let the session know the tables of an applied batch, so that the next need no look.

    Args:
        plan: The batch.
        session: Of its node.
        ownership: NodeDirectory.ownership when it was planned.

    Returns:
        Whether a value that announces a fault is other than in the batch before.
    """
    if plan.foreign_rows:
        return False
    if len(session.known) >= MAX_KEPT_ROWS:
        session.known.clear()
        session.table_order = ()
    is_urgent = False
    for part in plan.tables:
        table = part.table
        before = session.known.get((table.schema, table.entities))
        is_urgent |= before is not None and note_urgent(before, table)
        places = _urgent_places(part.schema, len(table.entities))
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
            urgent=places,
            urgent_seen=_urgent_bytes(table, places),
        )
    return is_urgent


def note_urgent(known: KnownTable, table: Table) -> bool:
    """Whether a value that announces a fault is other than in the table before, which it replaces.

    The agent sends such a change at once; to compare bytes costs next to nothing where there is
    none.
    """
    if known.urgent == _NOWHERE:
        return False
    seen, known.urgent_seen = known.urgent_seen, _urgent_bytes(table, known.urgent)
    return seen != known.urgent_seen


def _urgent_places(schema: Schema, rows: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    narrow, wide = schema.f32_count, range(schema.f32_count, len(schema.columns))
    urgent = [column.name in URGENT_METRICS for column in schema.columns]
    return (
        tuple(slice(4 * rows * n, 4 * rows * (n + 1)) for n in range(narrow) if urgent[n]),
        tuple(
            slice(8 * rows * (n - narrow), 8 * rows * (n - narrow + 1)) for n in wide if urgent[n]
        ),
    )


def _urgent_bytes(table: Table, places: tuple[tuple[slice, ...], tuple[slice, ...]]) -> bytes:
    narrow, wide = places
    return b"".join([*(table.f32[one] for one in narrow), *(table.f64[one] for one in wide)])


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
