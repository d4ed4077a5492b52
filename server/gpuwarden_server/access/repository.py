"""Keys, enrolment tokens and audit in state.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, func, insert, select, update

from gpuwarden_server.access.domain import AuditEntry, KeyRecord, key_form
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.scopes import scope_from
from gpuwarden_server.store.tables_fleet import audit, keys


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key with what its secrets are told by.

    Attributes:
        key_hash: SHA-256 of the secret, hex.
        former_hash: Of the one before the last rotation, None for none.
        record: The key.
    """

    key_hash: str
    former_hash: str | None
    record: KeyRecord


def insert_key(connection: Connection, record: KeyRecord, key_hash: str) -> None:
    """Store a key's record with its hash."""
    connection.execute(insert(keys).values(key_hash=key_hash, **key_form(record)))


def mark_revoked(connection: Connection, key_id: str, at: float) -> None:
    """Make a key invalid from `at`, epoch seconds."""
    connection.execute(update(keys).where(keys.c.id == key_id).values(revoked_at=at))


def replace_secret(connection: Connection, stored: StoredKey) -> None:
    """Store a key's new hash, and the former one with its last moment."""
    values = {
        "key_hash": stored.key_hash,
        "former_hash": stored.former_hash,
        "former_until": stored.record.former_until,
        "expires_at": stored.record.expires_at,
    }
    connection.execute(update(keys).where(keys.c.id == stored.record.id).values(values))


def valid_keys(connection: Connection) -> Iterable[StoredKey]:
    """Every key that is not revoked, expired ones too."""
    rows = connection.execute(select(keys).where(keys.c.revoked_at.is_(None))).mappings()
    return [StoredKey(row["key_hash"], row["former_hash"], _record(row)) for row in rows]


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
        expires_at=row["expires_at"],
        scope=scope_from(row["scope"]),
        former_until=row["former_until"],
    )
