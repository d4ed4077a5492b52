"""Batches in SQLite: on disk, or in memory while the disk is full. The only code that queries."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import msgspec

from gpuwarden_agent.spool.entry import Entry
from gpuwarden_wire.batches import ShedRange, Stream
from gpuwarden_wire.schema import Schema

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    id INTEGER PRIMARY KEY, stream TEXT NOT NULL, seq INTEGER, size INTEGER NOT NULL,
    body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS batches_by_seq ON batches (stream, seq, id, size);
CREATE TABLE IF NOT EXISTS shed (
    stream TEXT NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL,
    carrier_stream TEXT, carrier_seq INTEGER, PRIMARY KEY (stream, first_seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS schemas (hash TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS positions (name TEXT PRIMARY KEY, content BLOB NOT NULL);
"""

# Primary result codes (sqlite3.h); extended codes keep them in the low byte.
_FAILURES = MappingProxyType(
    {
        sqlite3.SQLITE_FULL: "disk_full",
        sqlite3.SQLITE_IOERR: "disk_io_error",
        sqlite3.SQLITE_READONLY: "disk_read_only",
        sqlite3.SQLITE_CANTOPEN: "spool_gone",
        sqlite3.SQLITE_CORRUPT: "spool_corrupt",
        sqlite3.SQLITE_NOTADB: "spool_corrupt",
    }
)
_MAX_SHED_RANGES = 256


class StoreFailed(Exception):
    """The store could not do what was asked; nothing of the transaction remains.

    Attributes:
        reason: Short stable phrase: disk_full, disk_io_error, spool_corrupt, …
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class BatchStore:
    """One SQLite database of batches. Not thread-safe: the spool holds a lock around it.

    Attributes:
        payload_bytes: Bytes of all batches in it.
    """

    payload_bytes: int

    def __init__(self, path: Path | None) -> None:
        """Open or create.

        Args:
            path: Database file; None keeps everything in memory.

        Raises:
            StoreFailed: Not a database, or the disk is full or not writable.
        """
        self._connection = sqlite3.connect(
            str(path) if path else ":memory:", isolation_level=None, check_same_thread=False
        )
        self._on_disk = path is not None
        self._level = ""
        self._facts: dict[str, str] = {}
        self._schemas: set[str] = set()
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise _failure(error) from error

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA auto_vacuum = INCREMENTAL")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA journal_size_limit = 4194304")
        execute("PRAGMA cache_size = -512")  # KiB; the whole agent should stay below 60 MiB
        self._connection.executescript(_TABLES)
        self._measure()

    def _measure(self) -> None:
        self.payload_bytes = sum(size for _, size in self.totals().values())

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[None]:
        """All or nothing.

        Args:
            durable: Synced to the disk when it ends, so that it outlasts a power cut; else it
                outlasts a kill of this process only.

        Raises:
            StoreFailed: Nothing was changed.
        """
        try:
            if self._on_disk:
                self._sync("FULL" if durable else "NORMAL")
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise _failure(error) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                self._facts.clear()
                self._schemas.clear()
                self._measure()

    def _sync(self, level: str) -> None:
        if level != self._level:
            self._connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def close(self) -> None:
        """Close the database; what is committed stays."""
        self._connection.close()

    # facts, positions, schemas

    def fact(self, name: str) -> str | None:
        """A stored fact of the spool itself."""
        return self._one_text("SELECT value FROM facts WHERE name = ?", name)

    def set_fact(self, name: str, value: str) -> None:
        """Store a fact, where it is another than before."""
        if self._facts.get(name) != value:
            self._run("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
            self._facts[name] = value

    def position(self, name: str) -> bytes | None:
        """What a follower committed last."""
        found = self._run("SELECT content FROM positions WHERE name = ?", (name,)).fetchone()
        return bytes(found[0]) if found else None

    def set_position(self, name: str, content: bytes) -> None:
        """Store a follower's position."""
        self._run("INSERT OR REPLACE INTO positions VALUES (?, ?)", (name, content))

    def positions(self) -> list[tuple[str, bytes]]:
        """All positions."""
        return list(self._run("SELECT name, content FROM positions"))

    def add_schema(self, schema: Schema) -> None:
        """Keep a schema for as long as batches may name it."""
        if schema.hash in self._schemas:
            return
        self._run(
            "INSERT OR IGNORE INTO schemas VALUES (?, ?)",
            (schema.hash, msgspec.msgpack.encode(schema)),
        )
        self._schemas.add(schema.hash)

    def schemas(self) -> dict[str, Schema]:
        """All schemas by hash."""
        rows = self._run("SELECT hash, body FROM schemas")
        return {key: msgspec.msgpack.decode(body, type=Schema) for key, body in rows}

    # batches

    def insert(self, entry: Entry) -> None:
        """Add a batch."""
        self._run(
            "INSERT INTO batches (id, stream, seq, size, body) VALUES (?, ?, ?, ?, ?)",
            (entry.id, entry.stream, entry.seq, len(entry.body), entry.body),
        )
        self.payload_bytes += len(entry.body)

    def replace_body(self, entry_id: int, body: bytes) -> None:
        """Give a batch another content."""
        self.payload_bytes += len(body) - self._size_of(entry_id)
        self._run("UPDATE batches SET body = ?, size = ? WHERE id = ?", (body, len(body), entry_id))

    def number(self, entry_id: int, seq: int) -> None:
        """Give a batch its sequence."""
        self._run("UPDATE batches SET seq = ? WHERE id = ?", (seq, entry_id))

    def make_room_after(self, seq: int, entry_id: int) -> None:
        """Move every event batch behind `seq` up by one in sequence and in order."""
        execute = self._run
        execute("UPDATE batches SET seq = seq + 1 WHERE stream = 'events' AND seq > ?", (seq,))
        execute("UPDATE batches SET id = -id - 1 WHERE id > ?", (entry_id,))
        execute("UPDATE batches SET id = -id WHERE id < 0")

    def first_numbered(self, stream: Stream, after_seq: int) -> Entry | None:
        """The batch with the lowest sequence above `after_seq`."""
        return self._entry("WHERE stream = ? AND seq > ? ORDER BY seq LIMIT 1", (stream, after_seq))

    def oldest_unsent(self) -> Entry | None:
        """The telemetry sealed first of what has no sequence."""
        return self._entry("WHERE stream = 'telemetry' AND seq IS NULL ORDER BY id LIMIT 1", ())

    def newest_unsent(self) -> Entry | None:
        """The telemetry sealed last of what has no sequence."""
        return self._entry(
            "WHERE stream = 'telemetry' AND seq IS NULL ORDER BY id DESC LIMIT 1", ()
        )

    def has_more_unsent_than(self, number: int) -> bool:
        """True where more than `number` batches of telemetry have no sequence."""
        found = self._run(
            "SELECT 1 FROM batches WHERE stream = 'telemetry' AND seq IS NULL LIMIT 1 OFFSET ?",
            (number,),
        )
        return found.fetchone() is not None

    def holds(self, entry_id: int) -> bool:
        """True where a batch is (still) here."""
        return self._run("SELECT 1 FROM batches WHERE id = ?", (entry_id,)).fetchone() is not None

    def entries(self) -> list[Entry]:
        """Every batch in order of sealing."""
        rows = self._run("SELECT id, stream, seq, body FROM batches ORDER BY id")
        return [_entry(row) for row in rows]

    def oldest(self, stream: Stream, limit: int) -> list[tuple[int, int | None]]:
        """(id, seq) of the batches of a stream that were sealed first."""
        rows = self._run(
            "SELECT id, seq FROM batches WHERE stream = ? ORDER BY id LIMIT ?",
            (stream, limit),
        )
        return list(rows)

    def delete(self, entry_id: int) -> None:
        """Remove one batch."""
        self.payload_bytes -= self._size_of(entry_id)
        self._run("DELETE FROM batches WHERE id = ?", (entry_id,))

    def delete_through(self, stream: Stream, seq: int) -> None:
        """Remove every batch of a stream up to a sequence, and the shed ranges they carried."""
        execute = self._run
        freed = execute(
            "SELECT coalesce(sum(size), 0) FROM batches WHERE stream = ? AND seq <= ?",
            (stream, seq),
        ).fetchone()[0]
        execute("DELETE FROM batches WHERE stream = ? AND seq <= ?", (stream, seq))
        execute("DELETE FROM shed WHERE carrier_stream = ? AND carrier_seq <= ?", (stream, seq))
        self.payload_bytes -= freed

    def take_from(self, other: BatchStore) -> None:
        """Add everything that another store holds."""
        for entry in other.entries():
            self.insert(entry)
        for schema in other.schemas().values():
            self.add_schema(schema)
        for name, content in other.positions():
            self.set_position(name, content)
        for dropped in other.shed_ranges():
            self.add_shed(dropped.stream, dropped.first_seq, dropped.last_seq)

    def clear(self) -> None:
        """Remove every batch, shed range and position."""
        for table in ("batches", "shed", "positions"):
            self._run(f"DELETE FROM {table}")
        self.payload_bytes = 0

    def release_pages(self) -> None:
        """Give unused pages back to the file system, some at a time."""
        if self._on_disk and self._number("PRAGMA freelist_count") > 256:
            try:
                # Not execute: that takes one step, and each step frees one page.
                self._connection.executescript("PRAGMA incremental_vacuum(256)")
            except sqlite3.DatabaseError as error:
                raise _failure(error) from error

    def totals(self) -> dict[Stream, tuple[int, int]]:
        """Batches and bytes of each stream."""
        rows = self._run(
            "SELECT stream, count(*), coalesce(sum(size), 0) FROM batches GROUP BY stream"
        )
        found = {Stream(stream): (count, size) for stream, count, size in rows}
        return {stream: found.get(stream, (0, 0)) for stream in Stream}

    def highest_id(self) -> int:
        """Highest id of a batch, 0 where there is none."""
        return self._number("SELECT coalesce(max(id), 0) FROM batches")

    # shed ranges

    def add_shed(self, stream: Stream, first_seq: int, last_seq: int) -> None:
        """Remember a dropped range until a batch has told the server."""
        extended = self._run(
            "UPDATE shed SET last_seq = ? WHERE stream = ? AND last_seq = ? "
            "AND carrier_seq IS NULL",
            (last_seq, stream, first_seq - 1),
        )
        if extended.rowcount == 0:
            self._run(
                "INSERT OR REPLACE INTO shed VALUES (?, ?, ?, NULL, NULL)",
                (stream, first_seq, last_seq),
            )

    def carry_shed(self, stream: Stream, seq: int) -> tuple[ShedRange, ...]:
        """The ranges that the batch (stream, seq) declares; takes on those not carried yet."""
        execute = self._run
        execute(
            "UPDATE shed SET carrier_stream = ?, carrier_seq = ? WHERE (stream, first_seq) IN "
            "(SELECT stream, first_seq FROM shed WHERE carrier_seq IS NULL LIMIT ?)",
            (stream, seq, _MAX_SHED_RANGES),
        )
        rows = execute(
            "SELECT stream, first_seq, last_seq FROM shed "
            "WHERE carrier_stream = ? AND carrier_seq = ? ORDER BY stream, first_seq",
            (stream, seq),
        )
        return tuple(ShedRange(Stream(name), first, last) for name, first, last in rows)

    def release_shed(self, stream: Stream, seq: int) -> None:
        """The carrier (stream, seq) is gone: its ranges wait for another one."""
        self._run(
            "UPDATE shed SET carrier_stream = NULL, carrier_seq = NULL "
            "WHERE carrier_stream = ? AND carrier_seq = ?",
            (stream, seq),
        )

    def shed_ranges(self) -> list[ShedRange]:
        """All ranges that are not known to have been declared."""
        rows = self._run("SELECT stream, first_seq, last_seq FROM shed ORDER BY stream, first_seq")
        return [ShedRange(Stream(name), first, last) for name, first, last in rows]

    def count_shed(self) -> int:
        """Dropped batches that are not known to have been declared."""
        return self._number("SELECT coalesce(sum(last_seq - first_seq + 1), 0) FROM shed")

    def _entry(self, where: str, values: tuple[object, ...]) -> Entry | None:
        row = self._run(f"SELECT id, stream, seq, body FROM batches {where}", values).fetchone()
        return _entry(row) if row else None

    def _number(self, query: str) -> int:
        return int(self._run(query).fetchone()[0])

    def _size_of(self, entry_id: int) -> int:
        found = self._run("SELECT size FROM batches WHERE id = ?", (entry_id,)).fetchone()
        return int(found[0]) if found else 0

    def _run(self, statement: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        try:
            return self._connection.execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise _failure(error) from error

    def _one_text(self, query: str, name: str) -> str | None:
        found = self._run(query, (name,)).fetchone()
        return str(found[0]) if found else None


def _entry(row: tuple[int, str, int | None, bytes]) -> Entry:
    return Entry(id=row[0], stream=Stream(row[1]), seq=row[2], body=row[3])


def _failure(error: sqlite3.DatabaseError) -> StoreFailed:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return StoreFailed(_FAILURES.get(code, "spool_failed"), str(error))


def set_aside(path: Path, now: float) -> Path:
    """Move a database that cannot be read out of the way; what it held can still be looked at.

    Returns:
        Where it lies now; an earlier one that was set aside is replaced.
    """
    aside = path.with_name(path.name + ".corrupt")
    path.replace(aside)
    os.utime(aside, (now, now))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside
