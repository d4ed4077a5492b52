"""Keys, enrolment tokens and audit in state.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, func, insert, select, true, update

from gpuwarden_server.access.domain import AuditEntry, KeyRecord, TokenRecord, key_form, token_form
from gpuwarden_server.access.principals import Role
from gpuwarden_server.access.scopes import scope_from
from gpuwarden_server.store.tables_access import enrolment_tokens
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


def agent_keys_of(connection: Connection, node_id: str, now: float) -> list[KeyRecord]:
    """Keys with which an agent may speak for a node at `now`, epoch seconds."""
    statement = (
        select(keys)
        .where(keys.c.node_id == node_id, keys.c.revoked_at.is_(None))
        .where(keys.c.expires_at.is_(None) | (keys.c.expires_at > now))
        .order_by(keys.c.created_at, keys.c.id)
    )
    return [_record(row) for row in connection.execute(statement).mappings()]


def insert_token(connection: Connection, record: TokenRecord, token_hash: str) -> None:
    """Store a token's record with its hash."""
    connection.execute(insert(enrolment_tokens).values(token_hash=token_hash, **token_form(record)))


def update_token(connection: Connection, record: TokenRecord) -> None:
    """Store how often a token was used, and its end."""
    changed = {"used": record.used, "revoked_at": record.revoked_at}
    table = enrolment_tokens
    connection.execute(update(table).where(table.c.id == record.id).values(changed))


def token_by_hash(connection: Connection, token_hash: str) -> TokenRecord | None:
    """The token with this SHA-256, hex; None where there is none."""
    found = _tokens(connection, enrolment_tokens.c.token_hash == token_hash)
    return found[0] if found else None


def token_by_id(connection: Connection, token_id: str) -> TokenRecord | None:
    """One token; None where there is none of this id."""
    found = _tokens(connection, enrolment_tokens.c.id == token_id)
    return found[0] if found else None


def all_tokens(connection: Connection) -> list[TokenRecord]:
    """All tokens, ended ones too, oldest first."""
    return _tokens(connection, true())


def _tokens(connection: Connection, match: ColumnElement[bool]) -> list[TokenRecord]:
    c = enrolment_tokens.c
    fields = [c[field.name] for field in dataclass_fields(TokenRecord)]
    rows = connection.execute(select(*fields).where(match).order_by(c.created_at, c.id))
    return [TokenRecord(*row) for row in rows]


def record_audit(connection: Connection, entry: AuditEntry) -> None:
    """Write `entry` in the transaction of the write that it tells about."""
    connection.execute(insert(audit).values(**asdict(entry)))


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What the audit is narrowed to; None does not narrow.

    Attributes:
        author: Name of the key.
        key_id: Id of the key.
        action: "create_key", "revoke_decision" …
        target: What was written.
        since: Epoch seconds, included.
        until: Epoch seconds, left out.
    """

    author: str | None = None
    key_id: str | None = None
    action: str | None = None
    target: str | None = None
    since: float | None = None
    until: float | None = None


def audit_after(
    connection: Connection, after: int, limit: int, wanted: AuditFilter
) -> list[dict[str, Any]]:
    """Entries with an id above `after`, oldest first."""
    query = select(audit).where(audit.c.id > after)
    for name in ("author", "key_id", "action", "target"):
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(audit.c[name] == value)
    if wanted.since is not None:
        query = query.where(audit.c.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(audit.c.at < wanted.until)
    rows = connection.execute(query.order_by(audit.c.id).limit(limit)).mappings()
    return [dict(row) for row in rows]


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
