"""Engines over one SQLite file: one that writes, one that reads."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from sqlite3 import Connection as SqliteConnection

from sqlalchemy import Connection, Engine, create_engine, event

# A writer of another process (a backup, a shell) may hold the file; SQLite waits this long.
BUSY_TIMEOUT_MS = 5_000
READER_POOL = 8


class Synchronous(StrEnum):
    """SQLite's `PRAGMA synchronous`: FULL syncs at each commit, NORMAL at each WAL checkpoint."""

    FULL = "FULL"
    NORMAL = "NORMAL"


def writing_engine(path: Path, synchronous: Synchronous) -> Engine:
    """Engine whose transactions take the write lock at once (BEGIN IMMEDIATE).

    A deferred transaction that turns into a writer fails with SQLITE_BUSY without waiting when
    another has written since it began (sqlite.org/lang_transaction.html).
    """
    pragmas = ("PRAGMA journal_mode=WAL", f"PRAGMA synchronous={synchronous}")
    return _engine(path, pragmas, "BEGIN IMMEDIATE", pool_size=1)


def reading_engine(path: Path) -> Engine:
    """Engine whose connections cannot write."""
    return _engine(path, ("PRAGMA query_only=ON",), "BEGIN", pool_size=READER_POOL)


def _engine(path: Path, pragmas: tuple[str, ...], begin: str, pool_size: int) -> Engine:
    engine = create_engine(
        f"sqlite:///{path}", pool_size=pool_size, max_overflow=pool_size, pool_timeout=10
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: SqliteConnection, record: object) -> None:
        # The driver must not begin transactions by itself: `begin` below does.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}",
            "PRAGMA foreign_keys=ON",
            *pragmas,
        ):
            cursor.execute(pragma)
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine
