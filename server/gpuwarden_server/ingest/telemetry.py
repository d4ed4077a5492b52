"""From a table's bytes to the columnar state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.sessions import (
    KnownLayout,
    KnownTable,
    NamedEntities,
    NodeSession,
    Rows,
    UrgentPlaces,
)
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.engine.telemetry import PlannedTable, TelemetryPlan
from gpuwarden_verdict.windows import (
    FleetState,
    JoinedTables,
    ReadTable,
    TableLayout,
    join_as,
    join_tables,
    layout_of,
)
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
    named = session.entities | {(schemas[t.schema].entity_kind, t.entities) for t in batch.tables}
    if _count(named) > MAX_ENTITIES_A_NODE:
        named = _merged(named)  # some may be in several tables
    if _count(named) > MAX_ENTITIES_A_NODE:
        raise ProblemError(
            400,
            "too_many_entities",
            f"node {batch.node_id} names more than {MAX_ENTITIES_A_NODE} entities",
            "Report it: the agent's collectors invent entities.",
        )
    session.entities = named


def _count(named: Iterable[NamedEntities]) -> int:
    return sum(len(entities) for _, entities in named)


def _merged(named: Iterable[NamedEntities]) -> frozenset[NamedEntities]:
    kinds: dict[EntityKind, set[str]] = {}
    for kind, entities in named:
        kinds.setdefault(kind, set()).update(entities)
    return frozenset((kind, tuple(entities)) for kind, entities in kinds.items())


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
    _make_room(session)
    is_urgent = False
    for part in plan.tables:
        name = part.table.schema, part.table.entities
        known = session.known.get(name)
        if known is None:
            known = session.known[name] = _known_table(part.schema, part.table)
        else:
            is_urgent |= _is_other(known, part.table.f32, part.table.f64, known.urgent)
        known.rows = session.rows[part.schema.entity_kind, part.table.entities]
        known.generation, known.ownership = session.rows_generation, ownership
    return is_urgent


def meet_tables(
    tables: Sequence[Table], schemas: Mapping[str, Schema], session: NodeSession
) -> None:
    """Let the session know tables before they are applied; whose their rows are is to be asked.

    Args:
        tables: Checked by `check_tables`.
        schemas: By hash.
        session: Of their node.
    """
    _make_room(session)
    for table in tables:
        name = table.schema, table.entities
        if name not in session.known:
            session.known[name] = _known_table(schemas[table.schema], table)


def _make_room(session: NodeSession) -> None:
    if len(session.known) >= MAX_KEPT_ROWS:
        session.known.clear()
        session.layouts.clear()
        session.layout = None


def _known_table(schema: Schema, table: Table) -> KnownTable:
    """A table seen for the first time; its rows are still to be told."""
    places = _urgent_places(schema, len(table.entities))
    return KnownTable(
        schema=schema,
        hash=table.schema,
        entities=table.entities,
        rows=np.empty(0, np.int64),
        generation=-1,
        ownership=-1,
        urgent=places,
        urgent_seen=_urgent_bytes(table.f32, table.f64, places),
    )


def note_urgent(known: KnownLayout, batch: JoinedTables) -> bool:
    """Whether a value that announces a fault is other than in the batch before.

    The agent sends such a change at once; to compare bytes costs next to nothing where there is
    none.
    """
    changed = [_is_other(table, batch.f32, batch.f64, places) for table, places in known.urgent]
    return any(changed)


def _is_other(known: KnownTable, f32: bytes, f64: bytes, places: UrgentPlaces) -> bool:
    """Whether what lies there is other than what was seen of the table last; it is seen now."""
    seen, known.urgent_seen = known.urgent_seen, _urgent_bytes(f32, f64, places)
    return seen != known.urgent_seen


def _urgent_places(schema: Schema, rows: int) -> UrgentPlaces:
    narrow, wide = schema.f32_count, range(schema.f32_count, len(schema.columns))
    urgent = [column.name in URGENT_METRICS for column in schema.columns]
    return (
        tuple(slice(4 * rows * n, 4 * rows * (n + 1)) for n in range(narrow) if urgent[n]),
        tuple(
            slice(8 * rows * (n - narrow), 8 * rows * (n - narrow + 1)) for n in wide if urgent[n]
        ),
    )


def _urgent_bytes(f32: bytes, f64: bytes, places: UrgentPlaces) -> bytes:
    narrow, wide = places
    return b"".join([*[f32[one] for one in narrow], *[f64[one] for one in wide]])


def _urgent_in(layout: TableLayout, number: int, places: UrgentPlaces) -> UrgentPlaces:
    """Places of one table as places in the joined blocks."""
    narrow, wide = 4 * layout.narrow[number], 8 * layout.wide[number]
    return (
        tuple(slice(narrow + one.start, narrow + one.stop) for one in places[0]),
        tuple(slice(wide + one.start, wide + one.stop) for one in places[1]),
    )


def learn_layout(
    names: tuple[tuple[str, tuple[str, ...]], ...], session: NodeSession
) -> KnownLayout | None:
    """The layout of tables that all came before, None where one did not."""
    known = [session.known.get(name) for name in names]
    tables = [table for table in known if table is not None]
    if len(tables) < len(names):
        return None
    layout = layout_of(
        [table.schema for table in tables],
        [table.hash for table in tables],
        [table.entities for table in tables],
    )
    if len(session.layouts) >= MAX_KEPT_ROWS:
        session.layouts.clear()
    learnt = session.layouts[names] = KnownLayout(
        names=tuple((table.hash, table.entities) for table in tables),
        layout=layout,
        f32_bytes=[4 * n for n in np.diff(layout.narrow).tolist()],
        f64_bytes=[8 * n for n in np.diff(layout.wide).tolist()],
        rows=tuple(table.rows for table in tables),
        generation=min(table.generation for table in tables),
        ownership=min(table.ownership for table in tables),
        urgent=tuple(
            (table, _urgent_in(layout, number, table.urgent))
            for number, table in enumerate(tables)
            if table.urgent != _NOWHERE
        ),
    )
    return learnt


def joined_plan(plan: TelemetryPlan, session: NodeSession) -> JoinedTables:
    """A planned batch in one piece, in the session's own strings where it knows the tables."""
    tables = [part.table for part in plan.tables]
    names = tuple((table.schema, table.entities) for table in tables)
    known = session.layouts.get(names) or learn_layout(names, session)
    if known is None:
        return join_tables(plan.tables)
    return join_as(known.layout, tables, tuple(part.observed_at for part in plan.tables))


def refresh_ownership(
    known: KnownLayout, node_id: str, owner_of: Callable[[str], str | None], ownership: int
) -> bool:
    """Whether all entities of a layout are still the node's own; notes it where they are."""
    own = (None, node_id)
    for schema, entities in zip(known.layout.schemas, known.layout.entities, strict=True):
        if schema.entity_kind is EntityKind.GPU and any(owner_of(u) not in own for u in entities):
            return False
    known.ownership = ownership
    return True


def rows_of_layout(known: KnownLayout, node_id: str, state: FleetState) -> tuple[Rows, ...]:
    """The rows of a layout's entities in the state, whose lock is held."""
    if known.generation != state.generation:
        layout = known.layout
        known.rows = tuple(
            _registered(schema.entity_kind, entities, node_id, state)
            for schema, entities in zip(layout.schemas, layout.entities, strict=True)
        )
        known.generation = state.generation
    return known.rows


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
