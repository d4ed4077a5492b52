"""Cursor pagination: a cursor names the last row that was read, so that new rows shift nothing."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Annotated

import msgspec
from fastapi import Query

from gpuwarden_server.core.errors import ProblemError

LARGEST_PAGE = 1000
CURSOR_FORMAT = "gpuwarden-cursor"
LARGEST_ROW = 2**63 - 1
"""SQLite's largest integer: no row is above it."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a list ordered by time, newest first, then by id."""

    at: float
    id: str


CursorQuery = Annotated[
    str | None,
    Query(
        description="next_cursor of the page before; none for the first page",
        max_length=2_000,
        # Opaque, but no free text: only what a page gave is one.
        json_schema_extra={"format": CURSOR_FORMAT},
    ),
]
"""Parameter type of every list that goes on by cursor; `decode_cursor` reads it."""


def encode_cursor(cursor: Cursor) -> str:
    """The cursor as an opaque, URL-safe word."""
    return (
        base64.urlsafe_b64encode(msgspec.json.encode([cursor.at, cursor.id])).decode().rstrip("=")
    )


def decode_cursor(text: str | None) -> Cursor | None:
    """The cursor in a query; None where there is none.

    Raises:
        ProblemError: 422, not a cursor of ours.
    """
    if not text:
        return None
    try:
        padded = text + "=" * (-len(text) % 4)
        at, row_id = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=tuple[float, str])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise ProblemError(
            422,
            "invalid_value",
            f"query.cursor: {text[:80]!r} is not a cursor",
            "Take it from next_cursor of the page before, or leave it out for the first page.",
        ) from error
    return Cursor(at, row_id)
