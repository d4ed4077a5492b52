"""Makers of ids, and the form of the ids that others make."""

from __future__ import annotations

import re
import secrets

# Host names, and what Slurm and Kubernetes take as node names. No slash, comma or space: a node id
# is the first part of "node/device", and the exclusion lists are one a line or comma-separated.
NODE_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"
_NODE_ID = re.compile(NODE_ID_PATTERN[:-1] + r"\Z")


def new_id(prefix: str) -> str:
    """A random id: the prefix, "-" and 12 hex digits, e.g. "inc-3f9a0c1b2d4e"."""
    return f"{prefix}-{secrets.token_hex(6)}"


def new_feed_id() -> str:
    """Random 32 hex digits that name one database for ever."""
    return secrets.token_hex(16)


def is_node_id(text: str) -> bool:
    """Whether `text` can name a node."""
    return _NODE_ID.match(text) is not None
