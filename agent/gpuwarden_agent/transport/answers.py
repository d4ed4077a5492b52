"""What an HTTP answer to a batch means for the batch. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum

from gpuwarden_wire.acknowledgement import Problem

MAX_RETRY_AFTER_S = 600.0
"""A longer wish is cut: a wrong header must not silence a node for days."""


class Fate(StrEnum):
    """What becomes of a batch after an answer."""

    ACCEPTED = "accepted"  # applied, now or earlier
    KEPT = "kept"  # not now: keep it and back off
    SCHEMA_REQUIRED = "schema_required"  # send it again with the schemas it names
    TOO_LARGE = "too_large"  # halve it
    MOVED = "moved"  # another server leads: send it there
    REFUSED = "refused"  # never: move it to rejected/


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came.

    Attributes:
        status_code: HTTP status.
        retry_after: Raw Retry-After header, "" where there is none.
        problem: Problem details, None where the body holds none.
    """

    status_code: int
    retry_after: str = ""
    problem: Problem | None = None


_KEPT = frozenset({401, 403, 404, 408, 429})


def fate_of(reply: Reply) -> Fate:
    """The fate of a batch that was answered so."""
    code = reply.problem.code if reply.problem else ""
    match reply.status_code:
        case 200:
            return Fate.ACCEPTED
        case 503 if reply.problem and reply.problem.leader:
            return Fate.MOVED
        case 428:
            return Fate.SCHEMA_REQUIRED
        case 413:
            return Fate.TOO_LARGE
        case 409 if code == "node_claimed":
            return Fate.KEPT
        case status if status in _KEPT or status < 400 or status >= 500:
            return Fate.KEPT
        case _:
            return Fate.REFUSED


def retry_after_s(header: str, now: float) -> float | None:
    """Seconds that Retry-After asks for; None where it is missing or not readable.

    RFC 9110 10.2.3: a number of seconds, or an HTTP date.
    """
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return min(max(at - now, 0.0), MAX_RETRY_AFTER_S)
