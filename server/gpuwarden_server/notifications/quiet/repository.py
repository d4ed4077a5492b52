"""Silences in the database."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, insert, select, update

from gpuwarden_server.notifications.quiet.domain import (
    Silence,
    SilenceKind,
    parse_matcher,
)
from gpuwarden_server.store.tables_notifications import silences


def add(connection: Connection, silence: Silence) -> None:
    """Keep a new silence."""
    connection.execute(
        insert(silences).values(
            id=silence.id,
            kind=silence.kind.value,
            matchers=_matchers_text(silence),
            starts_at=silence.starts_at,
            ends_at=silence.ends_at,
            reason=silence.reason,
            author=silence.author,
            created_at=silence.created_at,
        )
    )


def change(connection: Connection, silence: Silence) -> None:
    """Give one that is kept other words, times or matchers, and end it or let it go on."""
    values = {
        "kind": silence.kind.value,
        "matchers": _matchers_text(silence),
        "starts_at": silence.starts_at,
        "ends_at": silence.ends_at,
        "reason": silence.reason,
        "expired_at": silence.expired_at,
        "expired_by": silence.expired_by,
    }
    connection.execute(update(silences).where(silences.c.id == silence.id).values(**values))


def find(connection: Connection, silence_id: str) -> Silence | None:
    """A silence by its id."""
    found = connection.execute(select(silences).where(silences.c.id == silence_id)).first()
    return _silence(found) if found is not None else None


def not_ended(connection: Connection, now: float) -> list[Silence]:
    """Silences that hold or will."""
    statement = (
        select(silences)
        .where(silences.c.ends_at > now, silences.c.expired_at.is_(None))
        .order_by(silences.c.starts_at, silences.c.id)
    )
    return [_silence(row) for row in connection.execute(statement)]


def newest(connection: Connection, limit: int) -> list[Silence]:
    """All silences, those that end last first."""
    statement = select(silences).order_by(silences.c.ends_at.desc(), silences.c.id).limit(limit)
    return [_silence(row) for row in connection.execute(statement)]


def expire(connection: Connection, silence_id: str, at: float, by: str) -> None:
    """End a silence early."""
    connection.execute(
        update(silences).where(silences.c.id == silence_id).values(expired_at=at, expired_by=by)
    )


def _matchers_text(silence: Silence) -> str:
    return msgspec.json.encode([str(one) for one in silence.matchers]).decode()


def _silence(row: Row[Any]) -> Silence:
    return Silence(
        id=row.id,
        kind=SilenceKind(row.kind),
        matchers=tuple(parse_matcher(text) for text in msgspec.json.decode(row.matchers)),
        starts_at=row.starts_at,
        ends_at=row.ends_at,
        reason=row.reason,
        author=row.author,
        created_at=row.created_at,
        expired_at=row.expired_at,
        expired_by=row.expired_by,
    )
