"""The migrations and the tables say the same, up, down and up again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import IntegrityError

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store import postgres
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.places import parse_url
from gpuwarden_server.store.schema import HISTORY, STATE
from gpuwarden_server.store.versions import (
    HISTORY_VERSION,
    alembic_config,
    migrate_store,
    prepare_store,
)
from tests.builders.postgres import shared_postgres
from tests.builders.stores import StoreKind, place_in, query

BOTH_STORES = True


@pytest.fixture
def engine(tmp_path: Path, store_kind: StoreKind) -> Engine:
    if store_kind is StoreKind.POSTGRESQL:
        url = parse_url(shared_postgres().make_database())
        return postgres.writing_engine(url, "migrations")
    return writing_engine(tmp_path / "state.db", Synchronous.NORMAL)


@pytest.mark.postgres
def test_up_down_up_leaves_no_difference_to_the_tables(engine: Engine) -> None:
    for way in ("head", "base", "head"):
        with engine.begin() as connection:
            move = command.downgrade if way == "base" else command.upgrade
            move(alembic_config(connection), way)
        tables = set(inspect(engine).get_table_names())
        assert tables == ({"alembic_version"} | (set(STATE.tables) if way == "head" else set()))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, STATE) == []
    engine.dispose()


@pytest.mark.postgres
def test_partial_and_unique_indexes_are_in_the_migrations_too(engine: Engine) -> None:
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")
        migrated = _index_sql(connection)
        command.downgrade(alembic_config(connection), "base")
        STATE.create_all(connection)
        assert migrated == _index_sql(connection)
        assert any("WHERE" in sql for sql in migrated.values())
    engine.dispose()


@pytest.mark.postgres
def test_of_two_leases_that_hold_of_one_spare_the_newest_goes_on(engine: Engine) -> None:
    lease = (
        "INSERT INTO standby_leases (epoch, node_id, leaver, pool, decision_id, reason, author, "
        "begun_at, ended_by, ended_why) VALUES (:epoch, :node, 'n1', 'p', 'd', '', '', :at, '', '')"
    )
    made = ((1, "s1", 10.0), (2, "s2", 20.0), (3, "s1", 30.0))
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0023")
        for epoch, node, at in made:
            connection.execute(text(lease), {"epoch": epoch, "node": node, "at": at})
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")
        rows = connection.execute(text("SELECT epoch, ended_at FROM standby_leases ORDER BY epoch"))
        assert [tuple(row) for row in rows] == [(1, 30.0), (2, None), (3, None)]
    with pytest.raises(IntegrityError), engine.begin() as connection:
        connection.execute(text(lease), {"epoch": 4, "node": "s1", "at": 40.0})
    engine.dispose()


def test_there_is_one_head() -> None:
    assert len(ScriptDirectory.from_config(alembic_config()).get_heads()) == 1


@pytest.mark.postgres
def test_a_fresh_history_has_its_tables_and_its_version(tmp_path: Path) -> None:
    prepare_store(place_in(tmp_path))
    assert query(tmp_path, "SELECT version FROM history_version", half="history") == [
        (HISTORY_VERSION,)
    ]
    for name in HISTORY.tables:
        query(tmp_path, f"SELECT * FROM {name}", half="history")


@pytest.mark.postgres
def test_an_older_database_is_refused_and_mended_by_the_command_that_is_named(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    place = place_in(folder)
    prepare_store(place)
    next_release = _migrations_with_one_more(tmp_path)
    with pytest.raises(StoreError, match=r"older than.*gpuwarden server --migrate"):
        prepare_store(place, next_release)
    for _ in range(2):  # the second time there is nothing to do
        migrate_store(place, next_release)
    prepare_store(place, next_release)
    assert query(folder, "SELECT version_num FROM alembic_version") == [("next",)]
    assert query(folder, "SELECT count(*) FROM added") == [(0,)]
    with pytest.raises(StoreError, match="newer"):
        prepare_store(place)


def _migrations_with_one_more(tmp_path: Path) -> Path:
    """A copy of the migrations as the next release may have them."""
    config = alembic_config()
    script = ScriptDirectory.from_config(config)
    folder = tmp_path / "migrations"
    shutil.copytree(script.dir, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "next.py").write_text(
        "import sqlalchemy as sa\n"
        "from alembic import op\n"
        "revision = 'next'\n"
        f"down_revision = {script.get_current_head()!r}\n"
        "def upgrade():\n"
        "    op.create_table('added', sa.Column('id', sa.Integer, primary_key=True))\n"
        "def downgrade():\n"
        "    op.drop_table('added')\n"
    )
    return folder


def _index_sql(connection: Connection) -> dict[str, str]:
    listed = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    if connection.dialect.name == "postgresql":
        listed = "SELECT indexname, indexdef FROM pg_indexes WHERE tablename <> 'alembic_version'"
    return {name: " ".join(sql.split()) for name, sql in connection.execute(text(listed))}
