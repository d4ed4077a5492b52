"""A request under an idempotency key, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """Who asks for what under which key.

    Attributes:
        key_id: Id of the caller's key: two callers may choose the same idempotency key.
        idempotency_key: As the caller chose it.
        fingerprint: SHA-256 hex over method, path with query, and body.
    """

    key_id: str
    idempotency_key: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer as it was sent.

    Attributes:
        code: HTTP status.
        headers: Those that say what the body is, lower case.
        body: None where it was not kept.
    """

    code: int
    headers: Mapping[str, str]
    body: bytes | None


@dataclass(frozen=True, slots=True)
class KeptRow:
    """What is stored of an earlier request.

    Attributes:
        fingerprint: Of that request.
        run_id: Process that took it.
        answer: None until the outcome is known.
    """

    fingerprint: str
    run_id: str
    answer: KeptAnswer | None
