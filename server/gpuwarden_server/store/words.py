"""What a database driver said, as far as others may read it."""

from __future__ import annotations

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError


def driver_words(error: Exception) -> str:
    """The driver's own first sentence: statements and their values may be secrets."""
    origin = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(origin, PsycopgError) and origin.diag.message_primary:
        return origin.diag.message_primary
    return str(origin).strip().partition("\n")[0]
