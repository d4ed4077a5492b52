"""One keep-alive connection to the server, and what its answers mean for a batch."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from urllib.parse import urlsplit

from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import CONTENT_TYPE, Batch
from gpuwarden_wire.codec import (
    WireError,
    decode_acknowledgement,
    decode_problem,
    encode_batch,
)

_TIMEOUT_S = 10.0
_WAIT_AND_RETRY = frozenset({401, 403, 404, 408, 429})


class Outcome(StrEnum):
    """What to do with a batch after an answer."""

    APPLIED = "applied"
    SCHEMAS_WANTED = "schemas_wanted"
    RETRY = "retry"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Answer:
    """The server's answer to one batch.

    Attributes:
        outcome: What to do.
        acknowledgement: For APPLIED.
        reason: Code and detail of the problem, "" where there is none.
    """

    outcome: Outcome
    acknowledgement: Acknowledgement | None = None
    reason: str = ""


class LinkBroken(Exception):
    """The connection is gone; whether the batch was applied is not known."""


class Link:
    """One HTTP connection, opened at need."""

    def __init__(self, url: str) -> None:
        """A connection to `url`, not yet open.

        Raises:
            ValueError: `url` is not http:// or https:// with a host.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an address: use http://HOST:PORT or https://…")
        self._path = f"{parts.path.rstrip('/')}/v1/ingest"
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else (http.client.HTTPConnection)
        )
        self._connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT_S)

    def send(self, batch: Batch, key: str) -> Answer:
        """Deliver one batch and read the answer.

        Raises:
            LinkBroken: Refused, reset, timed out or cut short.
        """
        headers = {"Content-Type": CONTENT_TYPE, "Authorization": f"Bearer {key}"}
        try:
            self._connection.request("POST", self._path, encode_batch(batch), headers)
            response = self._connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise LinkBroken(f"{type(error).__name__}: {error}") from error
        return _answer(response.status, body)

    def close(self) -> None:
        """Close the connection; the next `send` opens it again."""
        self._connection.close()


def _answer(code: int, body: bytes) -> Answer:
    if code == HTTPStatus.OK:
        try:
            return Answer(Outcome.APPLIED, decode_acknowledgement(body))
        except WireError as error:
            return Answer(Outcome.RETRY, reason=str(error))
    problem = decode_problem(body)
    problem_code = problem.code if problem else ""
    reason = f"{code} {problem_code}: {problem.detail if problem else body[:200]!r}"
    if code == HTTPStatus.PRECONDITION_REQUIRED:
        return Answer(Outcome.SCHEMAS_WANTED, reason=reason)
    if code in _WAIT_AND_RETRY or code >= 500 or problem_code == "node_claimed":
        return Answer(Outcome.RETRY, reason=reason)
    return Answer(Outcome.REJECTED, reason=reason)
