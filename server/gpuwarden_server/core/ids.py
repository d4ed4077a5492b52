"""Makers of ids."""

from __future__ import annotations

import secrets


def new_id(prefix: str) -> str:
    """A random id: the prefix, "-" and 12 hex digits, e.g. "inc-3f9a0c1b2d4e"."""
    return f"{prefix}-{secrets.token_hex(6)}"


def new_feed_id() -> str:
    """Random 32 hex digits that name one database for ever."""
    return secrets.token_hex(16)
