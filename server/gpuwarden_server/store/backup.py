"""Copies of a whole store, while its server runs, and their way back.

From SQLite to SQLite the files are copied by SQLite's own backup; between PostgreSQL and any other
place rows are copied, each half in one snapshot. A copy is a store like any other.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    MetaData,
    Table,
    delete,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DatabaseError

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.core.ids import new_feed_id
from gpuwarden_server.store import engines, postgres
from gpuwarden_server.store.database import HISTORY_FILE, STATE_FILE
from gpuwarden_server.store.folder import FolderLock
from gpuwarden_server.store.places import Place, name_of
from gpuwarden_server.store.schema import HISTORY, STATE
from gpuwarden_server.store.tables_fleet import audit, history_version, keys
from gpuwarden_server.store.tables_judging import feed, feed_log
from gpuwarden_server.store.tables_lease import lease_renewals, leases
from gpuwarden_server.store.versions import check_versions, migrate_store, require_nobody_leads
from gpuwarden_server.store.words import driver_words

ROWS_A_STEP = 1_000
FILES = (HISTORY_FILE, STATE_FILE)
"""History first: the state that is copied after it knows every spool that it names."""

# Of the place, not of what is in it: a token that fell would let a former leader in.
_OF_THE_PLACE = frozenset({leases.name, lease_renewals.name, history_version.name})


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied.

    Attributes:
        where: The copy.
        rows: Rows of its state half.
    """

    where: str
    rows: int


def backup_store(source: Place, target: Place) -> Copied:
    """Copy a store; its server may run.

    Args:
        source: What is copied.
        target: A folder or a PostgreSQL database, with no store in it.

    Raises:
        StoreError: The source is no store of this version, or there is one at the target.
    """
    check_versions(source)
    with _told(target):
        _require_empty(target)
        _copy(source, target)
        return Copied(name_of(target), _count_rows(target))


def restore_store(source: Place, target: Place, now: float, *, force: bool) -> Copied:
    """Make the target what the source is, under a new feed id, so that clients read all anew.

    Args:
        source: A backup, or any other store.
        target: Where servers will work.
        now: Epoch seconds, for the audit.
        force: Whether what is in the target may be lost.

    Raises:
        StoreError: A server works on the target, there is something in it, or the source is no
            store of this version.
    """
    check_versions(source)
    with _told(target), _alone(target):
        if not force:
            _require_empty(target)
        _copy(source, target)
        with _writing(target, STATE_FILE) as engine, engine.begin() as connection:
            _renew_feed(connection, name_of(source), now)
        return Copied(name_of(target), _count_rows(target))


@contextmanager
def _told(target: Place) -> Iterator[None]:
    try:
        yield
    except (DatabaseError, sqlite3.Error) as error:
        raise StoreError(
            f"cannot copy to {name_of(target)}: {driver_words(error)}",
            "Free space there, or name another place; what was there before is as it was.",
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot write {name_of(target)}: {error.strerror}",
            "Name a place that may be written, with --to.",
        ) from error


@contextmanager
def _alone(target: Place) -> Iterator[None]:
    """No server works on the target meanwhile."""
    if isinstance(target, URL):
        with _writing(target, STATE_FILE) as engine, engine.begin() as connection:
            require_nobody_leads(connection, name_of(target))
        yield
        return
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FolderLock(target)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _require_empty(target: Place) -> None:
    if isinstance(target, URL):
        with _reading(target, STATE_FILE) as engine, engine.connect() as connection:
            # A server makes a key at its first start: without one, none ever worked here.
            is_empty = (
                not inspect(connection).has_table(keys.name)
                or connection.execute(select(keys.c.id).limit(1)).first() is None
            )
    else:
        is_empty = not any((target / name).exists() for name in FILES)
    if not is_empty:
        raise StoreError(
            f"there is a store at {name_of(target)}",
            "Name another place; `gpuwarden restore --force` replaces what is there.",
        )


def _copy(source: Place, target: Place) -> None:
    if isinstance(source, Path) and isinstance(target, Path):
        _copy_files(source, target)
    elif isinstance(target, Path):
        _copy_rows_to_files(source, target)
    else:
        migrate_store(target)
        _copy_rows(source, target)


def _copy_files(source: Path, target: Path) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = [_part(target / name) for name in FILES]
    for name, path in zip(FILES, fresh, strict=True):
        path.unlink(missing_ok=True)
        origin = f"file:{source / name}?mode=ro"
        with closing(sqlite3.connect(origin, uri=True)) as reads, closing(_single(path)) as copy:
            reads.backup(copy)  # in one step: a writer does not make it begin anew, nor wait
    _put_in_place(target)


def _copy_rows_to_files(source: Place, target: Path) -> None:
    """By way of a folder beside the files, so that a copy that fails leaves them as they were."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = target / "copy.part"
    for name in FILES:
        (beside / name).unlink(missing_ok=True)
    migrate_store(beside)
    _copy_rows(source, beside)
    _copy_files(beside, target)
    for path in beside.iterdir():
        path.unlink()
    beside.rmdir()


def _single(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    return sqlite3.connect(path)


def _put_in_place(target: Path) -> None:
    """Make the parts the files: whole, synced, without the logs of those that were there."""
    for name in FILES:
        path = target / name
        with _part(path).open("rb") as part:
            os.fsync(part.fileno())
        for log in ("-wal", "-shm"):
            path.with_name(path.name + log).unlink(missing_ok=True)
        _part(path).replace(path)


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _copy_rows(source: Place, target: Place) -> None:
    for metadata, name in ((HISTORY, HISTORY_FILE), (STATE, STATE_FILE)):
        with (
            _reading(source, name) as reads,
            _writing(target, name) as writes,
            reads.begin() as origin,
            writes.begin() as copy,
        ):
            tables = _tables_of(metadata)
            for table in reversed(tables):
                copy.execute(delete(table))
            for table in tables:
                _copy_table(origin, copy, table)


def _copy_table(origin: Connection, copy: Connection, table: Table) -> None:
    reading = origin.execution_options(stream_results=True, yield_per=ROWS_A_STEP)
    for rows in reading.execute(select(table)).mappings().partitions():
        copy.execute(insert(table), [dict(row) for row in rows])
    if copy.dialect.name == "postgresql":
        _count_on(copy, table)


def _count_on(copy: Connection, table: Table) -> None:
    """Let PostgreSQL count on behind the rows that came with their numbers."""
    column = table.autoincrement_column
    if column is None:
        return
    sequence = func.pg_get_serial_sequence(table.name, column.name)
    highest = copy.execute(select(func.max(column))).scalar_one()
    if highest is not None:
        copy.execute(select(func.setval(sequence, highest)).where(sequence.is_not(None)))


def _renew_feed(connection: Connection, source: str, now: float) -> None:
    before = connection.execute(select(feed.c.feed_id)).scalar_one_or_none()
    after = new_feed_id()
    connection.execute(update(feed).values(feed_id=after))
    connection.execute(delete(feed_log))
    connection.execute(
        insert(audit).values(
            at=now,
            author="gpuwarden",
            key_id=None,
            action="restore",
            target="store",
            reason=f"restored from {source}",
            before={"feed_id": before},
            after={"feed_id": after},
        )
    )


def _count_rows(place: Place) -> int:
    with _reading(place, STATE_FILE) as engine, engine.begin() as connection:
        counts = (select(func.count()).select_from(table) for table in _tables_of(STATE))
        return sum(connection.execute(count).scalar_one() for count in counts)


def _tables_of(metadata: MetaData) -> list[Table]:
    return [table for table in metadata.sorted_tables if table.name not in _OF_THE_PLACE]


@contextmanager
def _reading(place: Place, name: str) -> Iterator[Engine]:
    if isinstance(place, URL):
        engine = postgres.reading_engine(place, "backup")
    else:
        engine = engines.reading_engine(place / name)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _writing(place: Place, name: str) -> Iterator[Engine]:
    if isinstance(place, URL):
        engine = postgres.writing_engine(place, "restore")
    else:
        engine = engines.writing_engine(place / name, engines.Synchronous.FULL)
    try:
        yield engine
    finally:
        engine.dispose()
