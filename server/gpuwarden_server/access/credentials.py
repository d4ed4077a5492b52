"""Secrets as text: their form, their hash, and how a request carries them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets

# The prefix and 32 random bytes as base64url without padding.
_KEY_FORM = re.compile(r"gw_[A-Za-z0-9_-]{43}")
_BEARER = "bearer "
_BASIC = "basic "
LONGEST_HEADER = 4096
"""Characters of an Authorization header that are looked at; a key in Basic needs under 500."""


def new_key() -> str:
    """A key of 256 random bits: "gw_" and 43 base64url characters."""
    return "gw_" + secrets.token_urlsafe(32)


def new_enrolment_token() -> str:
    """A token of 256 random bits: "gwe_" and 43 base64url characters."""
    return "gwe_" + secrets.token_urlsafe(32)


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key."""
    return _KEY_FORM.fullmatch(text) is not None


def hash_key(key: str) -> str:
    """SHA-256 in hex. A random key of 256 bits needs neither salt nor stretching."""
    return hashlib.sha256(key.encode()).hexdigest()


def secret_of(authorization: str | None) -> str | None:
    """The key in an Authorization header; None where there is none.

    `Bearer KEY`, or `Basic` with the key as the password and any user name (RFC 7617): BI tools
    know no other way.
    """
    if authorization is None or len(authorization) > LONGEST_HEADER:
        return None
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    if authorization[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        pair = base64.b64decode(authorization[len(_BASIC) :].strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return pair.partition(":")[2]
