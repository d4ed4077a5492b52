"""Entity tags: what a poller has already is not sent again (RFC 9110, 8.8.3 and 13.1.2)."""

from __future__ import annotations

import hashlib
import re

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def body_tag(body: bytes) -> str:
    """Tag of a body by its bytes; weak, since the same body may travel compressed."""
    return f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether the caller holds what `tag` stands for.

    Args:
        if_none_match: The request's If-None-Match, None where there is none.
        tag: The answer's ETag; weak and strong compare alike, as the header wants.
    """
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return tag.removeprefix("W/") in _TAG.findall(if_none_match)
