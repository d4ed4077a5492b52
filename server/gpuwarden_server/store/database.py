"""One database with its writer and its readers, and the pair that the server works on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL, Connection, Engine

from gpuwarden_server.store import postgres
from gpuwarden_server.store.engines import Synchronous, reading_engine, writing_engine
from gpuwarden_server.store.meters import WriterMeters
from gpuwarden_server.store.places import Place, name_of
from gpuwarden_server.store.writer import NO_FENCE, Fence, Writer

# Longest time that a group of writes stays open: an event's acknowledgement waits for it.
EVENT_WINDOW_S = 0.020
TELEMETRY_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Database:
    """One SQLite file, or one half of a PostgreSQL database.

    Attributes:
        name: What a person is told that it is.
        writer: The only writer in this process.
        readers: Engine of connections that cannot write.
        path: The file of SQLite, None on PostgreSQL.
    """

    name: str
    writer: Writer
    readers: Engine
    path: Path | None = None

    def read(self) -> AbstractContextManager[Connection]:
        """A reading connection with one snapshot; for `with`."""
        return self.readers.begin()

    def sync(self) -> None:
        """Force what was committed to disk.

        SQLite with NORMAL leaves that to its next WAL checkpoint. PostgreSQL has done it at the
        commit: it syncs once for all that commit together, so a lazier setting would save nothing.
        """
        if self.path is None:
            return
        try:
            log = os.open(self.path.with_name(self.path.name + "-wal"), os.O_RDWR)
        except FileNotFoundError:
            return  # no log: all is in the file, synced by SQLite's checkpoint
        try:
            os.fsync(log)
        finally:
            os.close(log)

    def close(self) -> None:
        """Write what is queued and let the file go."""
        self.writer.close()
        self.readers.dispose()


@dataclass(frozen=True, slots=True)
class Store:
    """What the server works on: two files, or two halves of one PostgreSQL database.

    Attributes:
        state: What must never be lost (state.db).
        history: What agents can feed again (history.db).
    """

    state: Database
    history: Database

    def start(self) -> None:
        """Start both writers."""
        self.state.writer.start()
        self.history.writer.start()

    def close(self) -> None:
        """Close both files."""
        self.history.close()
        self.state.close()


@dataclass(frozen=True, slots=True)
class Watch:
    """What looks after the writers of a store.

    Attributes:
        holder: Random id of this process; its sessions in PostgreSQL bear it.
        fence: Asked at the start of each transaction.
        meters: Figures, None counts nothing.
    """

    holder: str = "alone"
    fence: Fence = NO_FENCE
    meters: WriterMeters | None = None


def connect_store(place: Place, watch: Watch = Watch()) -> Store:
    """The store at `place`, which `prepare_store` has made; connects lazily."""
    if isinstance(place, URL):
        return Store(
            state=_postgres_database(place, "state", EVENT_WINDOW_S, watch),
            history=_postgres_database(place, "history", TELEMETRY_WINDOW_S, watch),
        )
    return Store(
        state=_file_database(place / STATE_FILE, Synchronous.FULL, EVENT_WINDOW_S, watch),
        history=_file_database(place / HISTORY_FILE, Synchronous.NORMAL, TELEMETRY_WINDOW_S, watch),
    )


STATE_FILE = "state.db"
HISTORY_FILE = "history.db"


def _file_database(path: Path, synchronous: Synchronous, window_s: float, watch: Watch) -> Database:
    engine = writing_engine(path, synchronous)
    writer = Writer(path.stem, engine, window_s, watch.fence, watch.meters)
    return Database(path.name, writer, reading_engine(path), path)


def _postgres_database(url: URL, half: str, window_s: float, watch: Watch) -> Database:
    engine = postgres.writing_engine(url, f"{watch.holder} {half}")
    writer = Writer(half, engine, window_s, watch.fence, watch.meters)
    return Database(name_of(url), writer, postgres.reading_engine(url, f"{watch.holder} readers"))
