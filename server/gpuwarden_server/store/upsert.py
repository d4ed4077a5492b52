"""INSERT with ON CONFLICT in the words of the database that a connection speaks to."""

from __future__ import annotations

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that can be told what to do where the row is there already.

    Both dialects have the same words for it, each in a class of its own.

    Args:
        connection: Whose database will carry it out.
        table: Into which it inserts.

    Returns:
        An insert with `on_conflict_do_update`, `on_conflict_do_nothing` and `excluded`.
    """
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
