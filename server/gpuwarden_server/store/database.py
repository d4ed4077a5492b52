"""One database file with its writer and its readers, and the pair that the server works on."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from gpuwarden_server.store.engines import Synchronous, reading_engine, writing_engine
from gpuwarden_server.store.writer import Writer

# Longest time that a group of writes stays open: an event's acknowledgement waits for it.
EVENT_WINDOW_S = 0.020
TELEMETRY_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class Database:
    """One SQLite file.

    Attributes:
        path: The file.
        writer: The only writer in this process.
        readers: Engine of connections that cannot write.
    """

    path: Path
    writer: Writer
    readers: Engine

    def read(self) -> AbstractContextManager[Connection]:
        """A reading connection with one snapshot; for `with`."""
        return self.readers.begin()

    def sync(self) -> None:
        """Force the write-ahead log to disk: what NORMAL leaves to the next WAL checkpoint."""
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
    """The server's two files.

    Attributes:
        state: state.db: what must never be lost.
        history: history.db: what agents can feed again.
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


def connect_store(folder: Path) -> Store:
    """The store in `folder`, whose files `prepare_store` has made; connects lazily."""
    return Store(
        state=_database(folder / STATE_FILE, Synchronous.FULL, EVENT_WINDOW_S),
        history=_database(folder / HISTORY_FILE, Synchronous.NORMAL, TELEMETRY_WINDOW_S),
    )


STATE_FILE = "state.db"
HISTORY_FILE = "history.db"


def _database(path: Path, synchronous: Synchronous, window_s: float) -> Database:
    writer = Writer(path.stem, writing_engine(path, synchronous), window_s)
    return Database(path, writer, reading_engine(path))
