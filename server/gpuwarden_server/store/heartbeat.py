"""A write that proves that the database takes writes."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_server.store.tables_fleet import heartbeats
from gpuwarden_server.store.upsert import upsert


def beat(connection: Connection) -> None:
    """Count one beat in the one row of its table; fails where the file cannot be written."""
    statement = upsert(connection, heartbeats).values(id=1, beats=1)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["id"], set_={"beats": heartbeats.c.beats + 1}
        )
    )
