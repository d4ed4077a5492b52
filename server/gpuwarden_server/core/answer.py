"""What came back over HTTP."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        http_status: None where nothing did.
        body: At most so many bytes as were asked for; empty where it was not asked for.
        retry_after: Header as it came, "" for none.
        error: Why there is no answer, "" where there is one.
    """

    http_status: int | None = None
    body: bytes = b""
    retry_after: str = ""
    error: str = ""
