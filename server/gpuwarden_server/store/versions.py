"""Schema versions: a fresh store is made, old and new ones refused with the command that mends.

The state half moves by Alembic (migrations/). The history half counts its versions in a table of
its own, since its steps are additions so far; the two never need each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, func, inspect, select
from sqlalchemy.exc import DatabaseError

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store import postgres
from gpuwarden_server.store.database import HISTORY_FILE, STATE_FILE
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.folder import check_folder_free
from gpuwarden_server.store.lease import find_holder
from gpuwarden_server.store.places import Place, name_of
from gpuwarden_server.store.schema import HISTORY
from gpuwarden_server.store.tables_fleet import history_version
from gpuwarden_server.store.upsert import upsert
from gpuwarden_server.store.words import driver_words

MIGRATE_COMMAND = "gpuwarden server --migrate"
INSTALL = "Install that version or a newer one: pip install --upgrade 'gpuwarden[server]'."
HISTORY_VERSION = 1
# Two servers that start at once must not both make the tables (PostgreSQL's advisory lock).
_PREPARING = 0x67_70_77_61


@dataclass(frozen=True, slots=True)
class _Half:
    """One half of a store as its version is worked on.

    Attributes:
        engine: Writes it.
        name: What a person is told that it is.
        mend: What helps where the database itself fails.
    """

    engine: Engine
    name: str
    mend: str

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A transaction in which nobody else prepares; told by name where the database fails."""
        try:
            with self.engine.begin() as connection:
                if connection.dialect.name == "postgresql":  # SQLite's BEGIN IMMEDIATE says as much
                    connection.execute(select(func.pg_advisory_xact_lock(_PREPARING)))
                yield connection
        except DatabaseError as error:
            words = driver_words(error)
            raise StoreError(f"cannot use {self.name}: {words}", self.mend) from error


def prepare_store(place: Place, migrations: Path | None = None) -> None:
    """Make a fresh store; check the versions of one that exists.

    Args:
        place: State folder, or PostgreSQL database.
        migrations: Folder of migrations, None for the shipped one.

    Raises:
        StoreError: The place cannot be used, holds no database, or its version is not the code's;
            names the mend.
    """
    script = _Script(migrations)
    with _opened(place) as (state, history):
        with state.transaction() as connection:
            found = _revision_of(connection)
            if found is None:
                script.upgrade(connection)
            elif found != script.head:
                raise script.refusal(state.name, found)
        with history.transaction() as connection:
            version = _history_version(connection)
            if version is not None and version != HISTORY_VERSION:
                raise _history_refusal(history.name, version)
            _make_history(connection)


def migrate_store(place: Place, migrations: Path | None = None) -> None:
    """Bring an older store to the code's version; a fresh one is made.

    Args:
        place: State folder, or PostgreSQL database.
        migrations: Folder of migrations, None for the shipped one.

    Raises:
        StoreError: The store is of a newer version, or no database, or a server works on it.
    """
    if isinstance(place, Path):
        _make_folder(place)
        check_folder_free(place)
    script = _Script(migrations)
    with _opened(place) as (state, history):
        with state.transaction() as connection:
            require_nobody_leads(connection, state.name)
            found = _revision_of(connection)
            if found is not None and found not in script.known:
                raise script.refusal(state.name, found)
            script.upgrade(connection)
        with history.transaction() as connection:
            version = _history_version(connection)
            if version is not None and version > HISTORY_VERSION:
                raise _history_refusal(history.name, version)
            _make_history(connection)


def describe_store(place: Path | URL, migrations: Path | None = None) -> str:
    """What stands in a store, without making anything.

    Args:
        place: State folder, or PostgreSQL database.
        migrations: Folder of migrations, None for the shipped one.

    Raises:
        StoreError: It cannot be used by this version; names the mend.
    """
    if isinstance(place, Path) and not (place / STATE_FILE).exists():
        return f"{place} holds no store yet: the first start makes one"
    script = _Script(migrations)
    with _opened(place) as (state, _), state.transaction() as connection:
        found = _revision_of(connection)
        if found is not None and found != script.head:
            raise script.refusal(state.name, found)
    return f"{state.name} has schema version {found or 'none: the first start makes the tables'}"


def check_versions(place: Place) -> None:
    """Look whether there is a store of the code's version, and change nothing.

    Raises:
        StoreError: There is none, or it is of another version; names the mend.
    """
    script = _Script(None)
    if isinstance(place, Path) and not (place / STATE_FILE).is_file():
        raise StoreError(f"there is no store at {name_of(place)}", "Name the folder of state.db.")
    with _opened(place) as (state, history):
        with state.transaction() as connection:
            found = _revision_of(connection)
        if found is None:
            raise StoreError(f"there is no store at {state.name}", "Name another place.")
        if found != script.head:
            raise script.refusal(state.name, found)
        with history.transaction() as connection:
            version = _history_version(connection)
        if version != HISTORY_VERSION:
            raise _history_refusal(history.name, version or 0)


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

    def upgrade(self, connection: Connection) -> None:
        command.upgrade(alembic_config(connection, self._folder), "head")

    def refusal(self, name: str, found: str) -> StoreError:
        if found in self.known:
            return StoreError(
                f"{name} has schema version {found}, older than this gpuwarden's {self.head}",
                f"Stop every server, make a backup, then run `{MIGRATE_COMMAND}`.",
            )
        return StoreError(
            f"{name} has schema version {found}, which this gpuwarden ({self.head}) does not "
            "know: it was written by a newer one",
            INSTALL,
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the state folder {folder}: {error.strerror}",
            "Set GPUWARDEN_STATE_FOLDER to a folder that the server may write.",
        ) from error


@contextmanager
def _opened(place: Place) -> Iterator[tuple[_Half, _Half]]:
    """The state half and the history half of a store."""
    if isinstance(place, URL):
        engine = postgres.writing_engine(place, "versions")
        mend = "Start PostgreSQL, or correct GPUWARDEN_DATABASE_URL; its user must own it."
        name = name_of(place)
        halves = _Half(engine, name, mend), _Half(engine, f"{name} (history)", mend)
    else:
        _make_folder(place)
        mend = "Check its owner and free space, or restore it from a backup."
        file, other = place / STATE_FILE, place / HISTORY_FILE
        halves = (
            _Half(writing_engine(file, Synchronous.FULL), str(file), mend),
            _Half(writing_engine(other, Synchronous.NORMAL), str(other), mend),
        )
    try:
        yield halves
    finally:
        for half in halves:
            half.engine.dispose()


def require_nobody_leads(connection: Connection, name: str) -> None:
    """Refuse to touch a PostgreSQL database on which a server works; a folder has its lock.

    Raises:
        StoreError: A server holds the lease.
    """
    if connection.dialect.name != "postgresql":
        return
    holder = find_holder(connection)
    if holder is not None:
        where = f" at {holder.url}" if holder.url else ""
        raise StoreError(
            f"a server{where} works on {name}",
            "Stop every server of this database. One that was killed holds its lease for "
            f"{max(1.0, holder.remaining_s):.0f} s more.",
        )


def _revision_of(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _history_version(connection: Connection) -> int | None:
    """Version of the history half; None where it is fresh, or older than its own count."""
    if not inspect(connection).has_table(history_version.name):
        return None
    return connection.execute(select(history_version.c.version)).scalar_one_or_none()


def _make_history(connection: Connection) -> None:
    # Every version so far only added tables: what is missing is made, what is there stays.
    HISTORY.create_all(connection)
    row = upsert(connection, history_version).values(id=1, version=HISTORY_VERSION)
    changed = {"version": HISTORY_VERSION}
    connection.execute(row.on_conflict_do_update(index_elements=["id"], set_=changed))


def _history_refusal(name: str, found: int) -> StoreError:
    if found < HISTORY_VERSION:
        return StoreError(
            f"{name} has version {found}, older than this gpuwarden's {HISTORY_VERSION}",
            f"Stop every server, make a backup, then run `{MIGRATE_COMMAND}`.",
        )
    return StoreError(
        f"{name} has version {found}, which this gpuwarden ({HISTORY_VERSION}) does not know: it "
        "was written by a newer one",
        INSTALL,
    )
