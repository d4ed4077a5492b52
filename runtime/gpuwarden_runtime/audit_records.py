"""Entries of the audit, as typed values."""

from __future__ import annotations

from typing import Any

import msgspec


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One write of a person or of the server itself.

    Attributes:
        id: Rises with each entry.
        at: Epoch seconds.
        author: Name of the key, or "gpuwarden".
        key_id: None for the server itself.
        before: Values before, None where there was nothing.
        after: Values after, None where there is nothing any more.
    """

    id: int
    at: float
    author: str
    action: str
    target: str
    key_id: str | None = None
    reason: str = ""
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of the audit; `next_after` is None on the last."""

    items: tuple[AuditEntry, ...]
    next_after: int | None = None
