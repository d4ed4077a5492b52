"""The writer and the stores, on real SQLite and real PostgreSQL."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from gpuwarden_server.app import run_migration, run_server
from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store import postgres
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.engines import Synchronous, reading_engine, writing_engine
from gpuwarden_server.store.places import parse_url
from gpuwarden_server.store.versions import migrate_store, prepare_store
from gpuwarden_server.store.writer import WriteFailed, Writer
from tests.builders.server import make_settings, running_server
from tests.builders.stores import StoreKind, place_in, query

BOTH_STORES = True
on_postgres = pytest.mark.postgres


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    place = place_in(tmp_path)
    path = None if isinstance(place, URL) else tmp_path / "some.db"
    if isinstance(place, URL):
        engine, readers = postgres.writing_engine(place, "t"), postgres.reading_engine(place, "t")
    else:
        engine = writing_engine(place / "some.db", Synchronous.FULL)
        readers = reading_engine(place / "some.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n INTEGER PRIMARY KEY)"))
    made = Database("some", Writer("some", engine, 0.02), readers, path)
    made.writer.start()
    yield made
    made.close()


@pytest.fixture
def file_database(database: Database) -> Database:
    """For what only SQLite can do."""
    if database.path is None:
        pytest.skip("speaks of SQLite's file alone")
    return database


def count(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(text("SELECT count(*) FROM t")).scalar_one())


def insert(database: Database, number: int) -> Future[int]:
    def run(connection: Connection) -> int:
        connection.execute(text("INSERT INTO t VALUES (:n)"), {"n": number})
        return number

    return database.writer.submit(run)


@on_postgres
def test_a_result_comes_after_its_commit(database: Database) -> None:
    assert insert(database, 1).result(5) == 1
    assert count(database) == 1


@on_postgres
def test_one_that_fails_undoes_itself_only(database: Database) -> None:
    hold = threading.Event()
    database.writer.submit(lambda connection: hold.wait(5))
    writes = [insert(database, n) for n in (1, 2, 2, 3)]
    hold.set()
    assert [writes[i].result(5) for i in (0, 1, 3)] == [1, 2, 3]
    with pytest.raises(Exception, match=r"UNIQUE constraint|duplicate key"):
        writes[2].result(5)
    assert count(database) == 3


@on_postgres
def test_writes_that_wait_together_share_a_commit(database: Database) -> None:
    hold, commits = threading.Event(), list[Connection]()
    database.writer.submit(lambda connection: hold.wait(60))
    writes = [insert(database, n) for n in range(500)]
    note = commits.append
    event.listen(Engine, "commit", note)
    try:
        hold.set()
        for write in writes:
            write.result(60)
    finally:
        event.remove(Engine, "commit", note)
    assert count(database) == 500
    # One commit each would sync 500 times; a group takes what 20 ms let in, however slowly it went.
    assert 0 < len(commits) < 250


def test_a_lost_group_fails_every_future(file_database: Database) -> None:
    database = file_database
    assert database.path is not None
    _lower_patience(database)
    blocker = sqlite3.connect(database.path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    write = insert(database, 1)
    with pytest.raises(WriteFailed, match="locked"):
        write.result(15)
    blocker.execute("ROLLBACK")
    blocker.close()
    assert insert(database, 2).result(10) == 2
    assert database.writer.alive


def test_what_a_full_disk_fails_is_not_there_and_is_named(file_database: Database) -> None:
    """SQLite rolls all back where it is full: what follows must not commit by itself."""
    database = file_database

    def fill(connection: Connection) -> None:
        connection.execute(text("INSERT INTO wide VALUES (:x)"), {"x": "y" * 100_000})

    def limit(connection: Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE wide (x TEXT)")
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar_one()

    database.writer.call(limit)
    hold = threading.Event()
    held = database.writer.submit(lambda _: hold.wait(5))
    writes: list[Future[Any]] = [
        insert(database, 1),
        database.writer.submit(fill),
        insert(database, 2),
    ]
    hold.set()
    errors = [write.exception(10) for write in writes]
    assert held.done()
    assert isinstance(errors[1], WriteFailed) and "disk is full" in str(errors[1])
    assert count(database) == sum(error is None for error in errors)
    assert insert(database, 3).result(10) == 3


def _lower_patience(database: Database) -> None:
    """50 ms instead of 5 s."""

    def run(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA busy_timeout=50")

    database.writer.call(run)


def test_a_closed_writer_refuses(database: Database) -> None:
    last = insert(database, 1)
    database.writer.close()
    assert last.result(1) == 1
    with pytest.raises(WriteFailed, match="closed"):
        insert(database, 2).result(1)


@on_postgres
def test_readers_cannot_write_and_do_not_wait_for_the_writer(database: Database) -> None:
    hold = threading.Event()

    def slow(connection: Connection) -> None:
        connection.execute(text("INSERT INTO t VALUES (9)"))
        hold.wait(5)

    write = database.writer.submit(slow)
    assert count(database) == 0
    hold.set()
    write.result(5)
    assert count(database) == 1
    with (
        database.readers.connect() as connection,
        pytest.raises(DBAPIError, match=r"readonly|read-only"),
    ):
        connection.execute(text("INSERT INTO t VALUES (10)"))


def test_the_files_are_set_up_as_designed(tmp_path: Path) -> None:
    prepare_store(tmp_path)
    for synchronous, number in ((Synchronous.FULL, 2), (Synchronous.NORMAL, 1)):
        engine = writing_engine(tmp_path / "state.db", synchronous)
        with engine.connect() as connection:
            found = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
        engine.dispose()
        assert found == {
            "journal_mode": "wal",
            "synchronous": number,
            "foreign_keys": 1,
            "busy_timeout": 5000,
        }


def test_the_state_folder_is_the_owners_alone(tmp_path: Path) -> None:
    prepare_store(tmp_path / "state")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


@on_postgres
def test_a_newer_database_is_refused_with_the_mend(tmp_path: Path) -> None:
    prepare_store(place_in(tmp_path))
    query(tmp_path, "UPDATE alembic_version SET version_num = '9999'")
    for opening in (prepare_store, migrate_store):
        with pytest.raises(StoreError, match=r"9999.*newer.*pip install --upgrade"):
            opening(place_in(tmp_path))


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match=r"state\.db.*not a database.*backup"):
        prepare_store(tmp_path)


@on_postgres
def test_a_history_of_another_version_is_refused_with_the_mend(tmp_path: Path) -> None:
    place = place_in(tmp_path)
    prepare_store(place)
    query(tmp_path, "UPDATE history_version SET version = 700", half="history")
    for opening in (prepare_store, migrate_store):
        with pytest.raises(StoreError, match=r"history.*version 700.*pip install --upgrade"):
            opening(place)
    query(tmp_path, "UPDATE history_version SET version = 0", half="history")
    with pytest.raises(StoreError, match=r"history.*version 0, older.*gpuwarden server --migrate"):
        prepare_store(place)
    migrate_store(place)
    prepare_store(place)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="GPUWARDEN_STATE_FOLDER"):
        prepare_store(tmp_path / "file" / "state")


def test_a_second_server_on_the_same_folder_does_not_start(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], store_kind: StoreKind
) -> None:
    if store_kind is not StoreKind.SQLITE:
        pytest.skip("a second server of a PostgreSQL database stands by")
    settings = make_settings(tmp_path)
    with running_server(settings):
        assert run_server(settings) == 2
        assert "another server works on" in capfd.readouterr().err


@on_postgres
def test_nothing_is_migrated_under_a_server_that_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings):
        assert run_migration(settings) == 2
        assert "works on" in capfd.readouterr().err
    assert run_migration(settings) == 0


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    nowhere = parse_url("postgresql://warden:geheim@127.0.0.1:9/fleet")
    with pytest.raises(StoreError, match=r"warden:\*\*\*@127.0.0.1:9/fleet.*refused") as caught:
        prepare_store(nowhere)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["nonsense geheim", "mysql://u:geheim@h/d", "postgresql://u:geheim@h"]
)
def test_an_address_of_no_postgresql_database_is_refused(text: str) -> None:
    with pytest.raises(StoreError, match="postgresql://USER") as caught:
        parse_url(text)
    assert "geheim" not in str(caught.value)
