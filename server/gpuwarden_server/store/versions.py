"""Schema versions: fresh files are made, old and new ones refused with the command that mends.

state.db moves by Alembic (migrations/). history.db holds only what agents feed again, so it keeps
its own short list of steps, counted in `PRAGMA user_version`; the two never need each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store.database import HISTORY_FILE, STATE_FILE
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.folder import check_folder_free
from gpuwarden_server.store.schema import HISTORY

MIGRATE_COMMAND = "gpuwarden server --migrate"
HISTORY_VERSION = 1


def prepare_store(folder: Path, migrations: Path | None = None) -> None:
    """Make the folder and fresh files; check the versions of files that exist.

    Args:
        folder: State folder.
        migrations: Folder of migrations, None for the shipped one.

    Raises:
        StoreError: The folder cannot be used, a file is no database, or its version is not the
            code's; names the mend.
    """
    _make_folder(folder)
    script = _Script(migrations)
    with _state_engine(folder) as engine:
        found = _revision_of(engine)
        if found is None:
            script.upgrade(engine)
        elif found != script.head:
            raise script.refusal(folder / STATE_FILE, found)
    _prepare_history(folder / HISTORY_FILE)


def migrate_store(folder: Path, migrations: Path | None = None) -> None:
    """Bring older files to the code's version; fresh ones are made.

    Args:
        folder: State folder.
        migrations: Folder of migrations, None for the shipped one.

    Raises:
        StoreError: A file is of a newer version, or no database, or a server works on it.
    """
    _make_folder(folder)
    check_folder_free(folder)
    script = _Script(migrations)
    with _state_engine(folder) as engine:
        found = _revision_of(engine)
        if found is not None and found not in script.known:
            raise script.refusal(folder / STATE_FILE, found)
        script.upgrade(engine)
    _prepare_history(folder / HISTORY_FILE)


def migrations_folder() -> Path:
    """Where the migrations are: beside the code when installed, in the checkout else.

    Raises:
        StoreError: Neither is there: the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_migrations", package.parent.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise StoreError("the database migrations are missing", "Install gpuwarden again.")


def alembic_config(connection: Connection | None = None, folder: Path | None = None) -> Config:
    """Alembic's configuration over the shipped migrations, or those in `folder`.

    Works on `connection` where one is given.
    """
    config = Config()
    place = str(folder or migrations_folder())
    config.set_main_option("script_location", place.replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class _Script:
    """The migrations of one folder."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        script = ScriptDirectory.from_config(alembic_config(folder=folder))
        self.head = script.get_current_head()
        self.known = {step.revision for step in script.walk_revisions()}

    def upgrade(self, engine: Engine) -> None:
        with engine.begin() as connection:
            command.upgrade(alembic_config(connection, self._folder), "head")

    def refusal(self, path: Path, found: str) -> StoreError:
        if found in self.known:
            return StoreError(
                f"{path} has schema version {found}, older than this gpuwarden's {self.head}",
                f"Back the folder up, then run `{MIGRATE_COMMAND}`.",
            )
        return StoreError(
            f"{path} has schema version {found}, which this gpuwarden ({self.head}) does not "
            "know: it was written by a newer one",
            "Install that version or a newer one: pip install --upgrade 'gpuwarden[server]'.",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the state folder {folder}: {error.strerror}",
            "Set GPUWARDEN_STATE_FOLDER to a folder that the server may write.",
        ) from error


def _state_engine(folder: Path) -> AbstractContextManager[Engine]:
    return _engine_of(folder / STATE_FILE, Synchronous.FULL)


@contextmanager
def _engine_of(path: Path, synchronous: Synchronous) -> Iterator[Engine]:
    engine = writing_engine(path, synchronous)
    try:
        yield engine
    except DatabaseError as error:
        raise StoreError(
            f"cannot use {path}: {error.orig}",
            "Check its owner and free space, or restore it from a backup.",
        ) from error
    finally:
        engine.dispose()


def _revision_of(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _prepare_history(path: Path) -> None:
    with _engine_of(path, Synchronous.NORMAL) as engine, engine.begin() as connection:
        found = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if found == 0:
            HISTORY.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version={HISTORY_VERSION}")
        elif found != HISTORY_VERSION:
            raise StoreError(
                f"{path} has version {found}, this gpuwarden writes {HISTORY_VERSION}",
                f"Move {path.name} away: agents feed again what it held.",
            )
