"""Pins in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from gpuwarden_server.store.tables_pins import pins
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.document import Pin, PinKind
from gpuwarden_wire.metrics import EntityKind


def add(connection: Connection, made: Sequence[Pin]) -> None:
    """Keep new pins."""
    for pin in made:
        connection.execute(
            insert(pins).values(
                id=pin.id,
                entity_kind=pin.entity.kind.value,
                entity=pin.entity.key,
                node_id=pin.entity.node_id,
                kind=pin.kind.value,
                author=pin.by,
                reason=pin.reason,
                set_at=pin.set_at,
                starts_at=pin.starts_at,
                expires_at=pin.expires_at,
                leave=pin.leave,
                check_asked=pin.check,
                window_id=pin.window_id,
                source=pin.source,
            )
        )


def change(connection: Connection, changed: Sequence[Pin]) -> None:
    """Give pins that are kept another end."""
    for pin in changed:
        connection.execute(
            update(pins).where(pins.c.id == pin.id).values(expires_at=pin.expires_at)
        )


def end(connection: Connection, ended: Sequence[Pin], at: float) -> None:
    """Note that pins hold no more."""
    for pin in ended:
        connection.execute(update(pins).where(pins.c.id == pin.id).values(ended_at=at))


def let_go(connection: Connection, followed: Sequence[Pin]) -> None:
    """Note that leaves end with what they followed: should it come back, they do."""
    for pin in followed:
        connection.execute(update(pins).where(pins.c.id == pin.id).values(source=""))


def read_sources(connection: Connection, node_id: str) -> frozenset[str]:
    """What leaves of a node follow, or followed until a person ended them."""
    statement = select(pins.c.source).where(pins.c.node_id == node_id, pins.c.source != "")
    return frozenset(connection.execute(statement).scalars())


def read_live(connection: Connection) -> list[Pin]:
    """All that hold or will."""
    return [_pin(row) for row in connection.execute(select(pins).where(pins.c.ended_at.is_(None)))]


def _pin(row: Row[Any]) -> Pin:
    return Pin(
        entity=EntityRef(EntityKind(row.entity_kind), row.entity, row.node_id),
        kind=PinKind(row.kind),
        by=row.author,
        reason=row.reason,
        set_at=row.set_at,
        expires_at=row.expires_at,
        id=row.id,
        starts_at=row.starts_at,
        leave=row.leave,
        check=row.check_asked,
        window_id=row.window_id,
        source=row.source,
    )
