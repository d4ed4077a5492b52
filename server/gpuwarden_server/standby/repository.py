"""The book of spares in state.db."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Table, delete, func, or_, select

from gpuwarden_server.store.tables_fleet import events, gpu_slots
from gpuwarden_server.store.tables_judging import incidents
from gpuwarden_server.store.tables_standby import standby_leases, standbys
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.detectors.plug_in_check import proves_repair
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.standby import BookChange, Lease, Shelf, Spare, SpareState
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

NEWEST_PASSES = 200
"""Passed checks of a node that are looked through for its proof, newest first."""
NEWEST_INCIDENTS = 50
"""Incidents of a node and its GPUs that are looked through for its last fault, newest first."""
_event = msgspec.json.Decoder(Event)
_incident = msgspec.json.Decoder(Incident)


@dataclass(frozen=True, slots=True)
class Proof:
    """What speaks for the health of a node, and since when it would have to.

    Attributes:
        passed_at: Newest passed check of it as a whole, epoch seconds, None for never.
        counts_from: When the latest evidence that may exclude it or a GPU of it was seen, or the
            newest of its GPUs came in, epoch seconds; 0 for neither. Older proof says nothing.
    """

    passed_at: float | None
    counts_from: float


def read_shelf(connection: Connection) -> Shelf:
    """The book as it is stored."""
    c = standby_leases.c
    rows = connection.execute(select(standby_leases).where(c.ended_at.is_(None)))
    leases = [_lease(row) for row in rows]
    last = connection.execute(select(func.max(c.epoch))).scalar() or 0
    spares = [_spare(row) for row in connection.execute(select(standbys))]
    return Shelf({one.node_id: one for one in spares}, {one.joiner: one for one in leases}, last)


def write_change(connection: Connection, change: BookChange) -> None:
    """Store what changes of the book."""
    for spare in change.spares:
        _put(connection, standbys, "node_id", {**asdict(spare), "state": spare.state.value})
    if change.removed:
        connection.execute(delete(standbys).where(standbys.c.node_id.in_(change.removed)))
    # Ended ones first: one that begins for the same spare would meet the unique index.
    for lease in sorted(change.leases, key=lambda one: one.ended_at is None):
        form = asdict(lease)
        form["node_id"] = form.pop("joiner")
        _put(connection, standby_leases, "epoch", form)


def read_leases(connection: Connection, limit: int) -> list[Lease]:
    """The newest leases, those that ended too, newest first."""
    c = standby_leases.c
    statement = select(standby_leases).order_by(c.epoch.desc()).limit(limit)
    return [_lease(row) for row in connection.execute(statement)]


def was_leased_since(connection: Connection, leaver: str, at: float) -> bool:
    """Whether a spare worked for a node at a time or later, whatever became of its lease."""
    c = standby_leases.c
    held = or_(c.begun_at >= at, c.ended_at.is_(None), c.ended_at >= at)
    found = select(c.epoch).where(c.leaver == leaver, held).limit(1)
    return connection.execute(found).first() is not None


def read_proofs(connection: Connection, gpus: Mapping[str, Iterable[str]]) -> dict[str, Proof]:
    """When each node last passed a check as a whole, and what has come about since.

    A check of the node counts, and so do checks of all of its GPUs: then the oldest of these. Only
    such checks count as may end a repair: a plug-in's where its definition says so, and of the
    agent's own only those that did not follow a trouble of one kind.

    Args:
        connection: Reading connection.
        gpus: GPUs that are in each node, by node.
    """
    found = {}
    for node_id, of in gpus.items():
        parts = list(of)
        since = max(_last_fault(connection, node_id, parts), _newest_part(connection, node_id))
        found[node_id] = Proof(_passed_at(connection, node_id, parts), since)
    return found


def _last_fault(connection: Connection, node_id: str, gpus: list[str]) -> float:
    """When evidence that may exclude was last seen; a time of an agent's counts no later than ours.

    A GPU takes its past with it into another node.
    """
    c = incidents.c
    statement = (
        select(c.body)
        .where(or_(c.node_id == node_id, c.entity.in_(gpus)))
        .order_by(c.updated_at.desc())
        .limit(NEWEST_INCIDENTS)
    )
    bodies = connection.execute(statement).scalars()
    seen = (
        min(item.last_at, incident.updated_at)
        for incident in map(_incident.decode, bodies)
        for item in incident.evidence
        if item.max_rung >= Rung.EXCLUDE
    )
    return max(seen, default=0.0)


def _newest_part(connection: Connection, node_id: str) -> float:
    c = gpu_slots.c
    statement = select(func.max(c.since)).where(c.node_id == node_id, c.until.is_(None))
    return connection.execute(statement).scalar() or 0.0


def _passed_at(connection: Connection, node_id: str, gpus: list[str]) -> float | None:
    c = events.c
    statement = (
        select(c.entity_kind, c.entity, c.received_at, c.body)
        .where(c.node_id == node_id, c.kind == EventKind.CHECK_PASSED.value)
        .order_by(c.row.desc())
        .limit(NEWEST_PASSES)
    )
    newest: dict[tuple[str, str], float] = {}
    for kind, entity, at, body in connection.execute(statement):
        event = _event.decode(body)
        if proves_repair(event) and "after" not in event.attributes:
            newest.setdefault((kind, entity), at)
    whole = newest.get((EntityKind.NODE.value, node_id))
    parts = [newest.get((EntityKind.GPU.value, gpu)) for gpu in gpus]
    proven = [at for at in parts if at is not None]
    by_parts = min(proven) if proven and len(proven) == len(parts) else None
    return max((at for at in (whole, by_parts) if at is not None), default=None)


def _put(connection: Connection, table: Table, key: str, row: dict[str, Any]) -> None:
    statement = upsert(connection, table).values(row)
    changed = {name: statement.excluded[name] for name in row if name != key}
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=changed))


def _spare(row: Row[Any]) -> Spare:
    return Spare(
        *(row.node_id, row.pool, SpareState(row.state), row.added_at, row.added_by),
        *(row.proven_at, row.reason),
    )


def _lease(row: Row[Any]) -> Lease:
    return Lease(
        epoch=row.epoch,
        joiner=row.node_id,
        leaver=row.leaver,
        pool=row.pool,
        decision_id=row.decision_id,
        reason=row.reason,
        author=row.author,
        begun_at=row.begun_at,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
        ended_by=row.ended_by,
        ended_why=row.ended_why,
    )
