"""Moves of incidents as rows of a stream."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_server.incidents.repository import moves_after, newest_move
from gpuwarden_server.streams.tail import Row


class IncidentRows:
    """See `RowSource`."""

    event = "incident"

    def newest(self, connection: Connection) -> int:
        """Row of the newest move."""
        return newest_move(connection)

    def after(self, connection: Connection, row: int, limit: int) -> list[Row]:
        """Moves after a row."""
        return [Row(f.pop("row"), f["node_id"], f) for f in moves_after(connection, row, limit)]
