"""Which database the servers of a test work on, and what stands in it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

from gpuwarden_server.store.places import Place, parse_url
from tests.builders.postgres import fresh_database, run_sql


class StoreKind(StrEnum):
    """Databases that a server may work on."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Chosen:
    """The kind that servers made from now on work on; a folder keeps its database."""

    kind = StoreKind.SQLITE
    urls: dict[Path, str] = {}  # noqa: RUF012 - one a test process, as the kind is


def database_url_of(folder: Path) -> str | None:
    """Address of the database of the server with this state folder; None for SQLite."""
    if Chosen.kind is StoreKind.SQLITE:
        return None
    if folder not in Chosen.urls:
        Chosen.urls[folder] = fresh_database()
    return Chosen.urls[folder]


def place_in(folder: Path) -> Place:
    """The place of the server with this state folder."""
    url = database_url_of(folder)
    return folder if url is None else parse_url(url)


def query(folder: Path, statement: str, half: str = "state") -> list[Any]:
    """Rows of a statement, asked beside the server with this state folder.

    Args:
        folder: Its state folder.
        statement: SQL that both databases understand; a change is committed.
        half: state or history.
    """
    url = database_url_of(folder)
    if url is not None:
        return run_sql(parse_url(url), statement)
    with closing(sqlite3.connect(folder / f"{half}.db")) as connection, connection:
        return connection.execute(statement).fetchall()
