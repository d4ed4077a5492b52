"""Schema versions: fresh files are made, old and new ones refused with the command that mends.

state.db moves by Alembic (migrations/). history.db holds only what agents feed again, so it keeps
its own short list of steps, counted in `PRAGMA user_version`; the two never need each other.
"""

from __future__ import annotations

from collections.abc import Callable
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
from gpuwarden_server.store.schema import HISTORY

MIGRATE_COMMAND = "gpuwarden server --migrate"
HISTORY_VERSION = 1
_Work = Callable[[Path, Engine], None]


def prepare_store(folder: Path) -> None:
    """Make the folder and fresh files; check the versions of files that exist.

    Raises:
        StoreError: The folder cannot be used, a file is no database, or its version is not the
            code's; names the mend.
    """
    _make_folder(folder)
    _on_file(folder / STATE_FILE, Synchronous.FULL, _prepare_state)
    _on_file(folder / HISTORY_FILE, Synchronous.NORMAL, _prepare_history)


def migrate_store(folder: Path) -> None:
    """Bring older files to the code's version; fresh ones are made.

    Raises:
        StoreError: A file is of a newer version, or no database.
    """
    _make_folder(folder)
    _on_file(folder / STATE_FILE, Synchronous.FULL, _migrate_state)
    _on_file(folder / HISTORY_FILE, Synchronous.NORMAL, _prepare_history)


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


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration; works on `connection` where one is given."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the state folder {folder}: {error.strerror}",
            "Set GPUWARDEN_STATE_FOLDER to a folder that the server may write.",
        ) from error


def _on_file(path: Path, synchronous: Synchronous, work: _Work) -> None:
    engine = writing_engine(path, synchronous)
    try:
        work(path, engine)
    except DatabaseError as error:
        raise StoreError(
            f"cannot use {path}: {error.orig}",
            "Check its owner and free space, or restore it from a backup.",
        ) from error
    finally:
        engine.dispose()


def _prepare_state(path: Path, engine: Engine) -> None:
    found, head = _revisions(engine)
    if found is None:
        _upgrade(engine)
    elif found != head:
        raise _refusal(path, found, head)


def _migrate_state(path: Path, engine: Engine) -> None:
    found, head = _revisions(engine)
    if found is not None and found not in _known_revisions():
        raise _refusal(path, found, head)
    _upgrade(engine)


def _revisions(engine: Engine) -> tuple[str | None, str | None]:
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    return found, ScriptDirectory.from_config(alembic_config()).get_current_head()


def _known_revisions() -> set[str]:
    scripts = ScriptDirectory.from_config(alembic_config())
    return {script.revision for script in scripts.walk_revisions()}


def _upgrade(engine: Engine) -> None:
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")


def _refusal(path: Path, found: str, head: str | None) -> StoreError:
    if found in _known_revisions():
        return StoreError(
            f"{path} has schema version {found}, older than this gpuwarden's {head}",
            f"Back the folder up, then run `{MIGRATE_COMMAND}`.",
        )
    return StoreError(
        f"{path} has schema version {found}, which this gpuwarden ({head}) does not know: it was "
        "written by a newer one",
        "Install that version or a newer one: pip install --upgrade 'gpuwarden[server]'.",
    )


def _prepare_history(path: Path, engine: Engine) -> None:
    with engine.begin() as connection:
        found = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
        if found == 0:
            HISTORY.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version={HISTORY_VERSION}")
        elif found != HISTORY_VERSION:
            raise StoreError(
                f"{path} has version {found}, this gpuwarden writes {HISTORY_VERSION}",
                f"Move {path.name} away: agents feed again what it held.",
            )
