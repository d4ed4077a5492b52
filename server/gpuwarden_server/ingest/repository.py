"""Events, spools, sequences, schemas, conflicts and checkpoints in the database files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec
from sqlalchemy import (
    Connection,
    RowMapping,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from gpuwarden_server.store.tables_fleet import (
    applied_sequences,
    checkpoints,
    conflicts,
    events,
    nodes,
    schemas,
    spools,
)
from gpuwarden_server.store.tables_history import open_minutes
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.engine.events import EventFlag, StoredEvent
from gpuwarden_verdict.engine.sequences import SequenceLedger
from gpuwarden_verdict.engine.spools import Standing
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.codec import encode_batch
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

MAX_CONFLICTS_A_NODE = 32
MAX_CONFLICT_BYTES = 256 * 1024
MAX_SPOOLS_A_NODE = 16

_events_decoder = msgspec.json.Decoder(Event)
_schema_decoder = msgspec.json.Decoder(Schema)
_ledger_decoder = msgspec.json.Decoder(SequenceLedger)


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event on its way into the table.

    Attributes:
        event: As it came.
        ref: Resolved entity.
        batch: Its batch.
        received_at: Epoch seconds.
        flags: What is unusual.
    """

    event: Event
    ref: EntityRef
    batch: Batch
    received_at: float
    flags: frozenset[EventFlag]


@dataclass(frozen=True, slots=True)
class Contact:
    """How a node was last heard of.

    Attributes:
        last_seen_at: Epoch seconds of its last batch.
        interval_s: Its telemetry cadence, 0 unknown.
        boot_id: Newest boot announced.
    """

    last_seen_at: float
    interval_s: float
    boot_id: str


def insert_event(connection: Connection, arrived: Arrived) -> StoredEvent | None:
    """Store an event; None where the node's natural id is stored already."""
    batch, ref, event = arrived.batch, arrived.ref, arrived.event
    statement = (
        upsert(connection, events)
        .values(
            id=event.id,
            node_id=batch.node_id,
            entity_kind=str(ref.kind),
            entity=ref.key,
            kind=str(event.kind),
            observed_at=event.observed_at,
            received_at=arrived.received_at,
            boot_id=batch.boot_id,
            spool_id=batch.spool_id,
            seq=batch.seq,
            flags=",".join(sorted(arrived.flags)),
            body=msgspec.json.encode(event).decode(),
        )
        .on_conflict_do_nothing(index_elements=["node_id", "id"])
        .returning(events.c.row)
    )
    row = connection.execute(statement).scalar_one_or_none()
    if row is None:
        return None
    return StoredEvent(
        row, event, ref, batch.node_id, batch.boot_id, arrived.received_at, arrived.flags
    )


def events_after(
    connection: Connection,
    row: int,
    limit: int,
    node_id: str | None = None,
    *,
    kind: str | None = None,
    entity: str | None = None,
) -> list[StoredEvent]:
    """Stored events in order of arrival.

    Args:
        connection: Reading connection of state.db.
        row: Only events with a higher row.
        limit: At most so many.
        node_id: Only what this node sent, None for all.
        kind: Only events of this kind, None for all.
        entity: Only about this entity, None for all.
    """
    query = select(events).where(events.c.row > row).order_by(events.c.row).limit(limit)
    for name, value in (("node_id", node_id), ("kind", kind), ("entity", entity)):
        if value is not None:
            query = query.where(events.c[name] == value)
    return [_stored(found) for found in connection.execute(query).mappings()]


def events_by_id(connection: Connection, node_id: str, ids: Collection[str]) -> list[StoredEvent]:
    """Events of one node by their natural ids; those that are not there are left out."""
    query = select(events).where(events.c.node_id == node_id, events.c.id.in_(sorted(ids)))
    return [_stored(found) for found in connection.execute(query).mappings()]


def last_event_row(connection: Connection) -> int:
    """Highest row of the events table, 0 where it is empty."""
    return connection.execute(select(func.max(events.c.row))).scalar_one() or 0


def load_schemas(connection: Connection) -> list[Schema]:
    """All schemas ever registered."""
    return [_schema_decoder.decode(body) for body in connection.scalars(select(schemas.c.body))]


def insert_schemas(connection: Connection, new: Iterable[Schema], at: float) -> None:
    """Register schemas; those that are there already stay."""
    for schema in new:
        connection.execute(
            upsert(connection, schemas)
            .values(
                hash=schema.hash,
                entity_kind=str(schema.entity_kind),
                body=msgspec.json.encode(schema).decode(),
                first_seen_at=at,
            )
            .on_conflict_do_nothing()
        )


def make_live(connection: Connection, node_id: str, spool_id: str, at: float) -> list[str]:
    """Make a spool the node's live one: a new one, or one that speaks again.

    Returns:
        Oldest superseded spools beyond the bound, which were forgotten.
    """
    former = connection.execute(
        update(spools).where(spools.c.node_id == node_id).values(standing=str(Standing.SUPERSEDED))
    )
    statement = upsert(connection, spools).values(
        node_id=node_id,
        spool_id=spool_id,
        standing=str(Standing.LIVE),
        first_seen_at=at,
        last_seen_at=at,
    )
    fresh = {name: statement.excluded[name] for name in ("standing", "last_seen_at")}
    connection.execute(
        statement.on_conflict_do_update(index_elements=["node_id", "spool_id"], set_=fresh)
    )
    if former.rowcount < MAX_SPOOLS_A_NODE:
        return []
    return _forget_oldest(connection, node_id)


def _forget_oldest(connection: Connection, node_id: str) -> list[str]:
    """Delete a node's superseded spools but the newest; returns those that went."""
    query = (
        select(spools.c.spool_id)
        .where(spools.c.node_id == node_id, spools.c.standing == str(Standing.SUPERSEDED))
        .order_by(spools.c.first_seen_at.desc())
        .offset(MAX_SPOOLS_A_NODE - 1)
    )
    forgotten = list(connection.scalars(query))
    for table in (applied_sequences, spools):
        connection.execute(
            delete(table).where(table.c.node_id == node_id, table.c.spool_id.in_(forgotten))
        )
    return forgotten


def load_spools(connection: Connection) -> list[tuple[str, str, Standing]]:
    """Node, spool and standing of every spool, the oldest first."""
    query = select(spools.c.node_id, spools.c.spool_id, spools.c.standing)
    query = query.order_by(spools.c.first_seen_at)
    return [
        (node, spool, Standing(standing)) for node, spool, standing in connection.execute(query)
    ]


def load_contacts(connection: Connection) -> Mapping[str, Contact]:
    """How each node was last heard of, as of the last write."""
    rows = connection.execute(
        select(nodes.c.node_id, nodes.c.last_seen_at, nodes.c.interval_s, nodes.c.boot_id)
    )
    return {row.node_id: Contact(row.last_seen_at, row.interval_s, row.boot_id) for row in rows}


def save_last_seen(connection: Connection, seen: Mapping[tuple[str, str], float]) -> None:
    """Write when nodes were last heard of, by node and live spool."""
    rows = [{"node": node, "spool": spool, "at": at} for (node, spool), at in seen.items()]
    if not rows:
        return
    connection.execute(
        update(nodes)
        .where(nodes.c.node_id == bindparam("node"))
        .values(last_seen_at=bindparam("at")),
        rows,
    )
    connection.execute(
        update(spools)
        .where(spools.c.node_id == bindparam("node"), spools.c.spool_id == bindparam("spool"))
        .values(last_seen_at=bindparam("at")),
        rows,
    )


def save_ledger(
    connection: Connection, node_id: str, spool_id: str, ledger: SequenceLedger
) -> None:
    """Write the events stream's ledger, in the transaction of the events."""
    body = msgspec.json.encode(ledger)
    connection.execute(
        upsert(connection, applied_sequences)
        .values(node_id=node_id, spool_id=spool_id, ledger=body)
        .on_conflict_do_update(index_elements=["node_id", "spool_id"], set_={"ledger": body})
    )


def load_ledgers(connection: Connection) -> Iterator[tuple[str, str, SequenceLedger]]:
    """Node, spool and events ledger."""
    query = select(
        applied_sequences.c.node_id, applied_sequences.c.spool_id, applied_sequences.c.ledger
    )
    for node_id, spool_id, body in connection.execute(query):
        yield node_id, spool_id, _ledger_decoder.decode(body)


def keep_conflict(connection: Connection, batch: Batch, at: float) -> None:
    """Keep a batch aside that contradicts an applied one; the newest few of a node are kept."""
    body = encode_batch(batch)
    connection.execute(
        insert(conflicts).values(
            node_id=batch.node_id,
            spool_id=batch.spool_id,
            stream=str(batch.stream),
            seq=batch.seq,
            received_at=at,
            body=body if len(body) <= MAX_CONFLICT_BYTES else b"",
        )
    )
    newest = (
        select(conflicts.c.id)
        .where(conflicts.c.node_id == batch.node_id)
        .order_by(conflicts.c.id.desc())
        .limit(MAX_CONFLICTS_A_NODE)
    )
    connection.execute(
        delete(conflicts).where(conflicts.c.node_id == batch.node_id, conflicts.c.id.not_in(newest))
    )


def save_checkpoint(
    connection: Connection, shard: int, state: bytes, ledgers: bytes, at: float
) -> None:
    """Replace one shard's checkpoint in history.db."""
    values = {"saved_at": at, "state": state, "ledgers": ledgers}
    connection.execute(
        upsert(connection, checkpoints)
        .values(shard=shard, **values)
        .on_conflict_do_update(index_elements=["shard"], set_=values)
    )


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One shard as it was saved: `saved_at` in epoch seconds, `state` and `ledgers` encoded."""

    shard: int
    saved_at: float
    state: bytes
    ledgers: bytes


def load_checkpoints(connection: Connection) -> Iterator[StoredCheckpoint]:
    """Every checkpoint, the oldest first, one in memory at a time."""
    query = select(checkpoints.c.saved_at, checkpoints.c.state, checkpoints.c.ledgers)
    shards = select(checkpoints.c.shard).order_by(checkpoints.c.saved_at)
    for shard in connection.scalars(shards).all():
        saved = connection.execute(query.where(checkpoints.c.shard == shard)).one()
        yield StoredCheckpoint(shard, saved.saved_at, saved.state, saved.ledgers)


def save_open_minutes(connection: Connection, shard: int, body: bytes) -> None:
    """Replace one shard's open minutes in history.db, with its checkpoint."""
    connection.execute(
        upsert(connection, open_minutes)
        .values(shard=shard, body=body)
        .on_conflict_do_update(index_elements=["shard"], set_={"body": body})
    )


def load_open_minutes(connection: Connection) -> Iterator[tuple[int, float, bytes]]:
    """Shard, when it was saved (epoch seconds) and open minutes of every checkpoint.

    The oldest first, one in memory at a time: all of a big fleet are as much as its state.
    """
    same = checkpoints.c.shard == open_minutes.c.shard
    shards = select(open_minutes.c.shard, checkpoints.c.saved_at).join(checkpoints, same)
    bodies = select(open_minutes.c.body)
    for shard, saved_at in connection.execute(shards.order_by(checkpoints.c.saved_at)).all():
        body = connection.scalars(bodies.where(open_minutes.c.shard == shard)).one()
        yield shard, saved_at, body


def _stored(row: RowMapping) -> StoredEvent:
    flags = row["flags"]
    return StoredEvent(
        row=row["row"],
        event=_events_decoder.decode(row["body"]),
        ref=EntityRef(EntityKind(row["entity_kind"]), row["entity"], row["node_id"]),
        node_id=row["node_id"],
        boot_id=row["boot_id"],
        received_at=row["received_at"],
        flags=frozenset(EventFlag(flag) for flag in flags.split(",")) if flags else frozenset(),
    )
