"""Incidents and their moves in state.db."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, delete, func, insert, or_, select

from gpuwarden_server.core.pages import Cursor
from gpuwarden_server.store.tables_judging import acquittals, clearances, incident_moves, incidents
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.incidents.clearing import Clearance
from gpuwarden_verdict.incidents.domain import (
    Acquittal,
    EvidenceItem,
    Incident,
    IncidentMove,
    IncidentPhase,
)
from gpuwarden_wire.metrics import EntityKind

_decoder = msgspec.json.Decoder(Incident)
LIVE = "live"
"""Filter word for every phase but resolved."""


@dataclass(frozen=True, slots=True)
class StoredMove:
    """A move as it is read back."""

    before: str | None
    after: str
    fault_class: str
    severity: str
    reason: str
    author: str
    at: float


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """What a list is narrowed to; None does not narrow."""

    phase: str | None = None
    node_id: str | None = None
    entity: str | None = None
    severity: Severity | None = None
    fault_class: FaultClass | None = None


_NODES_A_QUERY = 500
_PARTS = ("nic", "disk", "mount")  # of a node; a GPU stands for itself


def write_incidents(connection: Connection, values: Sequence[Incident]) -> None:
    """Insert or replace incidents.

    Raises:
        sqlalchemy.exc.IntegrityError: Another live incident of the same entity and class exists.
    """
    # Ended ones first: one that takes over the class of another would meet the unique index.
    for value in sorted(values, key=lambda incident: incident.phase is not IncidentPhase.RESOLVED):
        row = _row(value)
        statement = upsert(connection, incidents).values(row)
        changed = {name: statement.excluded[name] for name in row if name != "id"}
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=changed))


def write_moves(connection: Connection, moves: Sequence[IncidentMove]) -> None:
    """Append facts."""
    rows = [
        {
            "incident_id": move.incident.id,
            "before": None if move.before is None else move.before.value,
            "after": move.incident.phase.value,
            "fault_class": move.incident.fault_class.value,
            "severity": move.incident.severity.value,
            "reason": move.reason,
            "author": move.author,
            "at": move.at,
        }
        for move in moves
    ]
    if rows:
        connection.execute(insert(incident_moves), rows)


def read_live(connection: Connection) -> list[Incident]:
    """All incidents that are not resolved."""
    return _read(connection, _bodies().where(incidents.c.phase != IncidentPhase.RESOLVED.value))


def write_acquittals(connection: Connection, values: Sequence[Acquittal]) -> None:
    """Insert or replace what revokes leave behind."""
    for value in values:
        row = {
            "entity_kind": value.entity.kind.value,
            "entity": value.entity.key,
            "node_id": value.entity.node_id,
            "fault_class": value.fault_class.value,
            "severity": value.severity.value,
            "until": value.until,
        }
        keys = ["entity_kind", "entity", "fault_class"]
        statement = upsert(connection, acquittals).values(row)
        changed = {name: statement.excluded[name] for name in row if name not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))


CLEARANCES_KEPT_S = 30 * 86_400.0
"""A clear whose evidence was not seen for so long is forgotten: no event comes so late."""


def write_clearances(connection: Connection, values: Sequence[Clearance]) -> None:
    """Insert or replace what people cleared; what is too old goes."""
    if values:
        before = max(value.seen_at for value in values) - CLEARANCES_KEPT_S
        connection.execute(delete(clearances).where(clearances.c.seen_at < before))
    for value in values:
        row = {
            "entity_kind": value.entity.kind.value,
            "entity": value.entity.key,
            "node_id": value.entity.node_id,
            "detector": value.detector,
            "severity": value.severity.value,
            "score": value.score,
            "at": value.at,
            "seen_at": value.seen_at,
        }
        keys = ["entity_kind", "entity", "detector"]
        statement = upsert(connection, clearances).values(row)
        changed = {name: statement.excluded[name] for name in row if name not in keys}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changed))


def delete_clearances(connection: Connection, values: Sequence[Clearance]) -> None:
    """Delete what holds no more of what people cleared."""
    c = clearances.c
    for value in values:
        of_entity = c.entity_kind == value.entity.kind.value, c.entity == value.entity.key
        connection.execute(delete(clearances).where(*of_entity, c.detector == value.detector))


def read_clearances(connection: Connection, now: float) -> list[Clearance]:
    """What people cleared and may still be meant.

    What went on while no server looked counts as unseen: after a longer gap it is new.
    """
    young = clearances.c.seen_at >= now - CLEARANCES_KEPT_S
    return [
        Clearance(
            EntityRef(EntityKind(row.entity_kind), row.entity, row.node_id),
            row.detector,
            Severity(row.severity),
            row.score,
            row.at,
            row.seen_at,
        )
        for row in connection.execute(select(clearances).where(young))
    ]


def read_acquittals(connection: Connection, now: float) -> list[Acquittal]:
    """Acquittals that still hold."""
    rows = connection.execute(select(acquittals).where(acquittals.c.until > now))
    return [
        Acquittal(
            entity=EntityRef(EntityKind(row.entity_kind), row.entity, row.node_id),
            fault_class=FaultClass(row.fault_class),
            severity=Severity(row.severity),
            until=row.until,
        )
        for row in rows
    ]


def read_one(connection: Connection, incident_id: str) -> Incident | None:
    """One incident; None where there is none of this id."""
    found = _read(connection, _bodies().where(incidents.c.id == incident_id))
    return found[0] if found else None


def read_of_entity(connection: Connection, ref: EntityRef, limit: int) -> list[Incident]:
    """Newest incidents of one entity; for a node, those of its NICs, disks and mounts too."""
    own = and_(incidents.c.entity_kind == ref.kind.value, incidents.c.entity == ref.key)
    parts = and_(incidents.c.node_id == ref.key, incidents.c.entity_kind.in_(_PARTS))
    match = or_(own, parts) if ref.kind.value == "node" else own
    statement = _bodies().where(match).order_by(incidents.c.opened_at.desc()).limit(limit)
    return _read(connection, statement)


def read_between(
    connection: Connection, node_ids: Collection[str], begin: float, end: float
) -> list[Incident]:
    """Incidents of nodes, of what sits in them, and of all places, that lived in a time.

    Args:
        connection: Reading connection.
        node_ids: The nodes.
        begin: Epoch seconds.
        end: Epoch seconds.
    """
    c, found = incidents.c, list[Incident]()
    lived = and_(c.opened_at <= end, or_(c.resolved_at.is_(None), c.resolved_at >= begin))
    wanted = ["", *sorted(node_ids)]  # a place sits in no node
    for first in range(0, len(wanted), _NODES_A_QUERY):
        names = wanted[first : first + _NODES_A_QUERY]
        found += _read(connection, _bodies().where(lived, c.node_id.in_(names)))
    return found


def read_page(
    connection: Connection, wanted: IncidentFilter, cursor: Cursor | None, limit: int
) -> list[Incident]:
    """A page, newest first."""
    statement = _bodies()
    if wanted.phase == LIVE:
        statement = statement.where(incidents.c.phase != IncidentPhase.RESOLVED.value)
    elif wanted.phase is not None:
        statement = statement.where(incidents.c.phase == wanted.phase)
    for name in ("node_id", "entity", "severity", "fault_class"):
        value = getattr(wanted, name)
        if value is not None:
            statement = statement.where(incidents.c[name] == str(value))
    if cursor is not None:
        older = incidents.c.opened_at < cursor.at
        same = and_(incidents.c.opened_at == cursor.at, incidents.c.id < cursor.id)
        statement = statement.where(or_(older, same))
    order = (incidents.c.opened_at.desc(), incidents.c.id.desc())
    return _read(connection, statement.order_by(*order).limit(limit))


def read_moves(connection: Connection, incident_id: str) -> list[StoredMove]:
    """All moves of one incident, oldest first."""
    c = incident_moves.c
    statement = (
        select(c.before, c.after, c.fault_class, c.severity, c.reason, c.author, c.at)
        .where(c.incident_id == incident_id)
        .order_by(c.row)
    )
    return [StoredMove(*row) for row in connection.execute(statement)]


def newest_move(connection: Connection) -> int:
    """Row of the newest move of any incident, 0 before the first."""
    return connection.execute(select(func.max(incident_moves.c.row))).scalar() or 0


def moves_after(connection: Connection, row: int, limit: int) -> list[dict[str, Any]]:
    """Moves of all incidents after a row, oldest first, each with what its incident is about."""
    c, of = incident_moves.c, incidents.c
    fields = (c.row, c.incident_id, of.entity_kind, of.entity, of.node_id, c.before, c.after)
    statement = (
        select(*fields, c.fault_class, c.severity, c.reason, c.author, c.at)
        .join(incidents, of.id == c.incident_id)
        .where(c.row > row)
        .order_by(c.row)
        .limit(limit)
    )
    return [dict(found) for found in connection.execute(statement).mappings()]


def _bodies() -> Select[str]:
    return select(incidents.c.body)


def _read(connection: Connection, statement: Select[str]) -> list[Incident]:
    return [_decoder.decode(body) for body in connection.execute(statement).scalars()]


def _row(value: Incident) -> dict[str, Any]:
    body = replace(value, evidence=tuple(_storable(value.evidence)))
    return {
        "id": value.id,
        "entity_kind": value.entity.kind.value,
        "entity": value.entity.key,
        "node_id": value.entity.node_id,
        "fault_class": value.fault_class.value,
        "severity": value.severity.value,
        "phase": value.phase.value,
        "opened_at": value.opened_at,
        "updated_at": value.updated_at,
        "resolved_at": value.resolved_at,
        "body": msgspec.json.encode(body).decode(),
    }


def _storable(evidence: Iterable[EvidenceItem]) -> Iterable[EvidenceItem]:
    # JSON has no NaN: a number that is none is left out, rather than read back as null.
    for item in evidence:
        yield replace(item, numbers=_finite(item.numbers), thresholds=_finite(item.thresholds))


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
