"""States, the judged position, and the one transaction that makes a judgement true."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    insert,
    select,
)

from gpuwarden_server.ingest.repository import events_after, events_by_id
from gpuwarden_server.store.tables_fleet import events
from gpuwarden_server.store.tables_judging import (
    decision_moves,
    decisions,
    entity_state_moves,
    entity_states,
    judged_position,
    part_ledger,
    sweep_memory,
)
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.engine.domain import Key, StateMove
from gpuwarden_verdict.engine.events import HISTORY_FLAGS, StoredEvent
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung
from gpuwarden_verdict.policy.document import DecisionPhase
from gpuwarden_verdict.policy.states import EntityRecord
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

RECENT_ROWS = 1000
STANDING_KINDS = (
    EventKind.NODE_BOOT,
    EventKind.COLLECTOR_TROUBLE,
    EventKind.COLLECTOR_RECOVERED,
)
"""What ix_events_standing holds."""

_event_decoder = msgspec.json.Decoder(Event)


def read_states(
    connection: Connection,
) -> tuple[dict[Key, EntityRef], dict[Key, EntityRecord], dict[Key, float]]:
    """All entities with a state: their references, records and newest passed checks, by key."""
    refs: dict[Key, EntityRef] = {}
    records: dict[Key, EntityRecord] = {}
    checks: dict[Key, float] = {}
    for row in connection.execute(select(entity_states)):
        key = (row.entity_kind, row.entity)
        refs[key] = EntityRef(EntityKind(row.entity_kind), row.entity, row.node_id)
        records[key] = EntityRecord(EntityState(row.state), row.since)
        if row.checked_at is not None:
            checks[key] = row.checked_at
    return refs, records, checks


def write_state(
    connection: Connection, ref: EntityRef, record: EntityRecord, checked_at: float | None
) -> None:
    """Insert or replace the state of one entity."""
    row = {
        "entity_kind": ref.kind.value,
        "entity": ref.key,
        "node_id": ref.node_id,
        "state": record.state.value,
        "since": record.since,
        "checked_at": checked_at,
    }
    statement = upsert(connection, entity_states).values(row)
    changed = {
        name: statement.excluded[name] for name in ("node_id", "state", "since", "checked_at")
    }
    keys = ["entity_kind", "entity"]
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))


def write_state_move(connection: Connection, move: StateMove) -> None:
    """Append the fact that a state changed."""
    connection.execute(
        insert(entity_state_moves).values(
            entity_kind=move.entity.kind.value,
            entity=move.entity.key,
            before=move.before.state.value,
            after=move.after.state.value,
            reason=move.reason,
            author=move.author,
            at=move.after.since,
        )
    )


def read_repairs(connection: Connection) -> dict[str, float]:
    """When a passed check last ended each GPU's repair, epoch seconds by uuid."""
    c = entity_state_moves.c
    statement = (
        select(c.entity, func.max(c.at))
        .where(c.entity_kind == EntityKind.GPU.value, c.before == EntityState.IN_REPAIR.value)
        .where(c.after == EntityState.PROBATION.value)
        .group_by(c.entity)
    )
    return {row[0]: row[1] for row in connection.execute(statement)}


def read_returns(connection: Connection) -> dict[Key, float]:
    """When gpuwarden's own last exclusion of each target ended, epoch seconds by key.

    By evidence or at its expiry: neither a revoke nor the end of a pin or planned leave counts.
    """
    move, one = decision_moves.c, decisions.c
    ended = (DecisionPhase.LIFTED.value, DecisionPhase.EXPIRED.value)
    statement = (
        select(one.entity_kind, one.entity, func.max(move.at))
        .join_from(decision_moves, decisions, move.decision_id == one.id)
        .where(move.before == DecisionPhase.IN_FORCE.value, move.after.in_(ended))
        .where(move.rung >= Rung.EXCLUDE.value, one.incident_id.is_not(None))  # a pin has none
        .group_by(one.entity_kind, one.entity)
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(statement)}


def read_state_moves(
    connection: Connection, key: Key, limit: int
) -> Sequence[Mapping[str, object]]:
    """Newest changes of state of one entity, newest first."""
    c = entity_state_moves.c
    statement = (
        select(c.before, c.after, c.reason, c.author, c.at)
        .where(c.entity_kind == key[0], c.entity == key[1])
        .order_by(c.row.desc())
        .limit(limit)
    )
    return [dict(row) for row in connection.execute(statement).mappings()]


def newest_state_move(connection: Connection) -> int:
    """Row of the newest change of state of any entity, 0 before the first."""
    return connection.execute(select(func.max(entity_state_moves.c.row))).scalar() or 0


def state_moves_after(connection: Connection, row: int, limit: int) -> list[dict[str, Any]]:
    """Changes of state of all entities after a row, oldest first, each with its node of now."""
    c, of = entity_state_moves.c, entity_states.c
    same = and_(of.entity_kind == c.entity_kind, of.entity == c.entity)
    fields = (c.row, c.entity_kind, c.entity, of.node_id, c.before, c.after)
    statement = (
        select(*fields, c.reason, c.author, c.at)
        .join(entity_states, same)
        .where(c.row > row)
        .order_by(c.row)
        .limit(limit)
    )
    return [dict(found) for found in connection.execute(statement).mappings()]


def read_standing_events(connection: Connection) -> Iterator[tuple[str, Event, float]]:
    """Each node's newest boot and its agent's own trouble since, in order of arrival.

    Node, event, and when it was received.

    A boot ends what stood before it, so nothing older is read; history is left out.
    """
    boot = _newest_boots().subquery()
    begun = (boot.c.row.is_(None)) | (events.c.row >= boot.c.row)
    statement = (
        select(events.c.node_id, events.c.body, events.c.received_at)
        .outerjoin(boot, boot.c.node_id == events.c.node_id)
        .where(_is_standing(), _no_history(), begun)
        .order_by(events.c.row)
    )
    for node_id, body, received_at in connection.execute(statement):
        yield node_id, _event_decoder.decode(body), received_at


def read_newest_boots(connection: Connection) -> dict[str, int]:
    """Row of each node's newest boot; history is left out."""
    return {found.node_id: found.row for found in connection.execute(_newest_boots())}


def _newest_boots() -> Select[tuple[str, int]]:
    return (
        select(events.c.node_id, func.max(events.c.row).label("row"))
        .where(_is_standing(), events.c.kind == EventKind.NODE_BOOT.value, _no_history())
        .group_by(events.c.node_id)
    )


def _is_standing() -> ColumnElement[bool]:
    # Literal and whole: SQLite takes a partial index only where a query repeats its condition.
    names: BindParameter[list[str]] = bindparam(
        None, [kind.value for kind in STANDING_KINDS], expanding=True, literal_execute=True
    )
    return events.c.kind.in_(names)


def _no_history() -> ColumnElement[bool]:
    past = [events.c.flags.not_like(f"%{flag}%") for flag in sorted(HISTORY_FLAGS)]
    return and_(*past)


def read_recent_events(connection: Connection, position: int) -> list[StoredEvent]:
    """Events judged last before `position`, in order: causes that a chain may refer to."""
    found = events_after(connection, max(0, position - RECENT_ROWS), RECENT_ROWS)
    return [stored for stored in found if stored.row <= position]


def read_told_events(
    connection: Connection, told: Mapping[str, Collection[str]], position: int
) -> list[StoredEvent]:
    """Events up to `position` that evidence rests on, in order; `told` has their ids by node."""
    found: dict[int, StoredEvent] = {}
    for node_id, ids in told.items():
        for stored in events_by_id(connection, node_id, ids):
            if stored.row <= position:
                found[stored.row] = stored
    return [found[row] for row in sorted(found)]


def read_position(connection: Connection) -> int:
    """Row of the newest event that has been judged; 0 before the first."""
    row = connection.execute(select(judged_position.c.event_row)).scalar()
    return 0 if row is None else int(row)


def write_position(connection: Connection, event_row: int) -> None:
    """Every event up to this row has been judged."""
    statement = upsert(connection, judged_position).values(id=1, event_row=event_row)
    changed = {"event_row": statement.excluded.event_row}
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))


def read_sweep_memory(connection: Connection) -> bytes | None:
    """What sweep detectors remembered at the last save; None where nothing was saved yet."""
    body = connection.execute(select(sweep_memory.c.body)).scalar()
    return None if body is None else bytes(body)


def write_sweep_memory(connection: Connection, body: bytes, at: float) -> None:
    """Replace what sweep detectors remember."""
    values = {"body": body, "saved_at": at}
    statement = upsert(connection, sweep_memory).values(id=1, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


def read_part_ledger(connection: Connection) -> bytes | None:
    """The ledger of parts at the last save; None where nothing was saved yet."""
    body = connection.execute(select(part_ledger.c.body)).scalar()
    return None if body is None else bytes(body)


def write_part_ledger(connection: Connection, body: bytes, at: float) -> None:
    """Replace the ledger of parts."""
    values = {"body": body, "saved_at": at}
    statement = upsert(connection, part_ledger).values(id=1, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))
