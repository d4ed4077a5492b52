"""Slabs and segments in history.db.

Times go in as whole numbers: PostgreSQL would compare a column of those with a float row by row,
without its index.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select

from gpuwarden_server.history.domain import Level
from gpuwarden_server.store.tables_history import history_segments, history_slabs
from gpuwarden_server.store.upsert import upsert


@dataclass(frozen=True, slots=True)
class Slab:
    """One step of a pack: `step_at` in epoch seconds, `body` a segment's bytes."""

    level: Level
    pack: int
    step_at: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """One window of a node: `window_at` in epoch seconds."""

    level: Level
    node_id: str
    window_at: int
    body: bytes


def insert_slabs(connection: Connection, slabs: Iterable[Slab]) -> None:
    """Add slabs; a step may have several, of which the later are better."""
    for slab in slabs:
        connection.execute(
            insert(history_slabs).values(
                level=int(slab.level), pack=slab.pack, step_at=slab.step_at, body=slab.body
            )
        )


def slabs_between(
    connection: Connection, level: Level, pack: int, begin: float, end: float
) -> list[tuple[int, bytes]]:
    """Id and body of a pack's slabs whose step begins in [begin, end), oldest write first."""
    query = (
        select(history_slabs.c.id, history_slabs.c.body)
        .where(
            history_slabs.c.level == int(level),
            history_slabs.c.pack == pack,
            history_slabs.c.step_at >= math.ceil(begin),
            history_slabs.c.step_at < math.ceil(end),
        )
        .order_by(history_slabs.c.id)
    )
    return [(row.id, row.body) for row in connection.execute(query)]


def oldest_slabs(connection: Connection, level: Level) -> list[tuple[int, int]]:
    """Pack and step of the oldest slab of each pack, oldest first."""
    oldest = func.min(history_slabs.c.step_at).label("oldest")
    query = (
        select(history_slabs.c.pack, oldest)
        .where(history_slabs.c.level == int(level))
        .group_by(history_slabs.c.pack)
        .order_by(oldest)
    )
    return [(row.pack, row.oldest) for row in connection.execute(query)]


def latest_slab(connection: Connection, level: Level, pack: int) -> bytes | None:
    """Body of a pack's latest slab; None where it has none."""
    query = (
        select(history_slabs.c.body)
        .where(history_slabs.c.level == int(level), history_slabs.c.pack == pack)
        .order_by(history_slabs.c.step_at.desc(), history_slabs.c.id.desc())
        .limit(1)
    )
    return connection.execute(query).scalar_one_or_none()


def delete_slabs(connection: Connection, ids: Sequence[int]) -> None:
    """Remove slabs whose content is in segments."""
    for begin in range(0, len(ids), 500):  # SQLite takes so many values in one statement
        chosen = history_slabs.c.id.in_(ids[begin : begin + 500])
        connection.execute(delete(history_slabs).where(chosen))


def save_segments(connection: Connection, segments: Iterable[Segment]) -> None:
    """Write segments; one that is there is replaced."""
    for segment in segments:
        statement = upsert(connection, history_segments).values(
            level=int(segment.level),
            node_id=segment.node_id,
            window_at=segment.window_at,
            body=segment.body,
        )
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=["node_id", "level", "window_at"],
                set_={"body": statement.excluded.body},
            )
        )


def segments_between(
    connection: Connection, level: Level, node_id: str, begin: float, end: float
) -> list[bytes]:
    """Bodies of a node's segments whose window begins in [begin, end), in order."""
    query = (
        select(history_segments.c.body)
        .where(
            history_segments.c.level == int(level),
            history_segments.c.node_id == node_id,
            history_segments.c.window_at >= math.ceil(begin),
            history_segments.c.window_at < math.ceil(end),
        )
        .order_by(history_segments.c.window_at)
    )
    return list(connection.execute(query).scalars())


def delete_before(connection: Connection, level: Level, before: float, most: int) -> int:
    """Remove the oldest rows of a level.

    Args:
        connection: Writes.
        level: Which.
        before: Segments whose window, and slabs whose step, begins before this, epoch seconds.
        most: Of each, at most so many.

    Returns:
        How many were removed.
    """
    removed = 0
    for table, at in (
        (history_segments, history_segments.c.window_at),
        (history_slabs, history_slabs.c.step_at),
    ):
        old = select(table.c.id).where(table.c.level == int(level), at < math.ceil(before))
        chosen = table.c.id.in_(old.order_by(at).limit(most))
        removed += connection.execute(delete(table).where(chosen)).rowcount
    return removed
