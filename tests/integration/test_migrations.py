"""The migrations and the tables say the same, up, down and up again."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.schema import HISTORY, STATE
from gpuwarden_server.store.versions import (
    HISTORY_VERSION,
    alembic_config,
    migrate_store,
    prepare_store,
)


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return writing_engine(tmp_path / "state.db", Synchronous.NORMAL)


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


def test_partial_and_unique_indexes_are_in_the_migrations_too(
    engine: Engine, tmp_path: Path
) -> None:
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")
    engine.dispose()
    made = create_engine(f"sqlite:///{tmp_path / 'made.db'}")
    STATE.create_all(made)
    made.dispose()
    assert _index_sql(tmp_path / "state.db") == _index_sql(tmp_path / "made.db")


def test_there_is_one_head() -> None:
    assert len(ScriptDirectory.from_config(alembic_config()).get_heads()) == 1


def test_a_fresh_history_has_its_tables_and_its_version(tmp_path: Path) -> None:
    prepare_store(tmp_path)
    connection = sqlite3.connect(tmp_path / "history.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (HISTORY_VERSION,)
    names = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }
    connection.close()
    assert names == set(HISTORY.tables)


def test_an_older_database_is_refused_and_mended_by_the_command_that_is_named(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    prepare_store(folder)
    next_release = _migrations_with_one_more(tmp_path)
    with pytest.raises(StoreError, match=r"older than.*gpuwarden server --migrate"):
        prepare_store(folder, next_release)
    for _ in range(2):  # the second time there is nothing to do
        migrate_store(folder, next_release)
    prepare_store(folder, next_release)
    connection = sqlite3.connect(folder / "state.db")
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("next",)
    assert connection.execute("SELECT count(*) FROM added").fetchone() == (0,)
    connection.close()
    with pytest.raises(StoreError, match="newer"):
        prepare_store(folder)


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


def _index_sql(path: Path) -> dict[str, str]:
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in rows}
