"""One request as a value, and how those of the API are made. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from gpuwarden_runtime.audit_records import AuditPage
from gpuwarden_runtime.records import EventPage, Page, RowPage

Answer = TypeVar("Answer")
Cursor = str | int | None

NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request.

    Attributes:
        method: HTTP method.
        path: Path, each name in it one segment.
        read: From the body of a good answer to its value; raises msgspec.DecodeError.
        query: Parameters; a list comes once for each item, None is left out.
        body: What becomes the JSON body, None for none.
        writes: Whether it changes anything: such a request gets an idempotency key.
    """

    method: str
    path: str
    read: Callable[[bytes], Answer]
    query: Mapping[str, object] = field(default_factory=lambda: NOTHING)
    body: object = None
    writes: bool = False


def get(path: str, kind: type[Answer], query: Mapping[str, object] = NOTHING) -> Call[Answer]:
    """A GET that is answered with JSON."""
    return Call("GET", path, read_json(kind), query)


def write(path: str, kind: type[Answer], body: object) -> Call[Answer]:
    """A POST that changes something."""
    return Call("POST", path, read_json(kind), body=body, writes=True)


def act(path: str, kind: type[Answer], reason: str) -> Call[Answer]:
    """A POST that needs a reason and nothing else."""
    return write(path, kind, {"reason": reason})


def read_json(kind: type[Answer]) -> Callable[[bytes], Answer]:
    """Reads a body into a record."""
    return lambda body: msgspec.json.decode(body, type=kind)


def read_text(body: bytes) -> str:
    """Reads a body of plain text."""
    return body.decode("utf-8", errors="replace")


def read_nothing(body: bytes) -> None:
    """Reads nothing."""
    return


def rows_of(kind: type[RowPage[Answer]], limit: int) -> Callable[[bytes], Page[Answer]]:
    """Reads a page of rows into a page with a cursor."""
    return lambda body: _page(msgspec.json.decode(body, type=kind), limit)


def read_rows(body: bytes, kind: type[EventPage] | type[AuditPage], limit: int) -> Page[Any]:
    """As `rows_of`, of pages that are named."""
    return _page(msgspec.json.decode(body, type=kind), limit)


def _page(page: RowPage[Answer] | EventPage | AuditPage, limit: int) -> Page[Any]:
    # The position is given on the last page of events too, for who comes back later.
    more = len(page.items) == limit
    return Page(items=page.items, next_cursor=page.next_after if more else None)


def segment(name: str) -> str:
    """An entity name as one path segment: a slash or dot in it must not become a path."""
    return quote(name, safe="")
