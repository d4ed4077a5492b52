"""Marks of pages in state.db."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, select

from gpuwarden_server.doors.targets import TargetMarks
from gpuwarden_server.store.tables_doors import door_marks
from gpuwarden_server.store.upsert import upsert

_decoder = msgspec.json.Decoder(TargetMarks)


def load_marks(connection: Connection) -> dict[tuple[str, str], TargetMarks]:
    """Marks by node and target."""
    query = select(door_marks.c.node_id, door_marks.c.target, door_marks.c.body)
    return {
        (node_id, target): _decoder.decode(body)
        for node_id, target, body in connection.execute(query)
    }


def save_marks(connection: Connection, node_id: str, target: str, marks: TargetMarks) -> None:
    """Replace the marks of one page."""
    body = msgspec.json.encode(marks)
    connection.execute(
        upsert(connection, door_marks)
        .values(node_id=node_id, target=target, body=body)
        .on_conflict_do_update(index_elements=["node_id", "target"], set_={"body": body})
    )
