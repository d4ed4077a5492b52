"""Where the database lies: a folder of SQLite files, or a PostgreSQL database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from gpuwarden_server.core.errors import StoreError

Place = Path | URL
"""A state folder, or the address of a PostgreSQL database."""

DRIVER = "postgresql+psycopg"
_SCHEMES = frozenset({"postgres", "postgresql", DRIVER})
_FORM = "postgresql://USER:PASSWORD@HOST:5432/DATABASE"


def place_of(folder: Path, url: str | None) -> Place:
    """The place that the settings name.

    Args:
        folder: State folder, taken where there is no URL.
        url: Address of a PostgreSQL database, None for SQLite.

    Raises:
        StoreError: The URL is none, or of another database.
    """
    return folder if url is None else parse_url(url)


def parse_url(text: str) -> URL:
    """The address of a PostgreSQL database, with our driver.

    Raises:
        StoreError: It is none; what it says is left out of the message, for it holds a password.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise StoreError("the address of the database is no URL", f"Write {_FORM}.") from error
    if url.drivername not in _SCHEMES or not url.database:
        raise StoreError(
            f"the address of the database ({name_of(url)}) names no PostgreSQL database",
            f"Write {_FORM}; for SQLite set GPUWARDEN_STATE_FOLDER instead.",
        )
    return url.set(drivername=DRIVER)


def name_of(place: Place) -> str:
    """How a person is told which place it is; without a password."""
    if isinstance(place, Path):
        return str(place)
    return place.set(drivername="postgresql").render_as_string(hide_password=True)
