"""Keys and audit in state.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from gpuwarden_server.access.domain import AuditEntry, KeyRecord
from gpuwarden_server.access.principals import Role
from gpuwarden_server.store.tables_fleet import audit, keys


def insert_key(connection: Connection, record: KeyRecord, key_hash: str) -> None:
    """Store a key's record with its hash."""
    connection.execute(insert(keys).values(key_hash=key_hash, **asdict(record)))


def mark_revoked(connection: Connection, key_id: str, at: float) -> None:
    """Make a key invalid from `at`, epoch seconds."""
    connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=at))


def valid_keys(connection: Connection) -> Iterable[tuple[str, KeyRecord]]:
    """Hash and record of every valid key."""
    rows = connection.execute(select(keys).where(keys.c.revoked_at.is_(None))).mappings()
    return [(row["key_hash"], _record(row)) for row in rows]


def all_keys(connection: Connection) -> list[KeyRecord]:
    """All keys, revoked ones too, oldest first."""
    rows = connection.execute(select(keys).order_by(keys.c.created_at, keys.c.id)).mappings()
    return [_record(row) for row in rows]


def count_keys(connection: Connection) -> int:
    """Number of keys ever made."""
    return connection.execute(select(func.count()).select_from(keys)).scalar_one()


def record_audit(connection: Connection, entry: AuditEntry) -> None:
    """Write `entry` in the transaction of the write that it tells about."""
    connection.execute(insert(audit).values(**asdict(entry)))


def audit_after(connection: Connection, after: int, limit: int) -> list[dict[str, Any]]:
    """Entries with an id above `after`, oldest first."""
    query = select(audit).where(audit.c.id > after).order_by(audit.c.id).limit(limit)
    return [dict(row) for row in connection.execute(query).mappings()]


def _record(row: RowMapping) -> KeyRecord:
    return KeyRecord(
        id=row["id"],
        role=Role(row["role"]),
        node_id=row["node_id"],
        name=row["name"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        revoked_at=row["revoked_at"],
    )
