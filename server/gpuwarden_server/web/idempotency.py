"""Idempotency keys: a write that is repeated under its key is carried out once.

The intent stands in the store before the request runs, and the answer before it is sent, so that
neither a lost connection nor a crash makes a repeat act twice. What a crash leaves without an
answer is said to be unknown, never run again. Who gets no answer repeats the same request.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.store.database import Database
from gpuwarden_server.web import repository
from gpuwarden_server.web.domain import KeptAnswer, KeptRequest

T = TypeVar("T")

KEPT_S = 24 * 3600.0
MOST_KEPT = 10_000
"""Requests kept of one caller within a day; a person's tool makes some hundred."""
LARGEST_KEPT_BYTES = 256 * 1024
SECRET_KEPT_S = 3600.0
"""How long an answer that shows a secret is in memory: repeats come within seconds."""
MOST_SECRETS = 1_000


@dataclass(slots=True)
class _Memory:
    """What must not be on disk: requests under way, and answers that show a secret."""

    running: set[tuple[str, str]] = field(default_factory=set)
    secrets: dict[tuple[str, str], tuple[float, bytes]] = field(default_factory=dict)


class IdempotencyBook:
    """What was asked and answered under each key; used from the event loop alone."""

    def __init__(self, database: Database, clock: Clock, registry: CollectorRegistry) -> None:
        """Make a book.

        Args:
            database: state.db.
            clock: Time.
            registry: Metrics.
        """
        self._database = database
        self._clock = clock
        self._run_id = secrets.token_hex(8)
        self._memory = _Memory()
        self._repeats = Counter(
            "gpuwarden_idempotent_repeats_total",
            "Requests under an idempotency key that had been used before, by what they got.",
            ["outcome"],
            registry=registry,
        )

    async def begin(self, request: KeptRequest) -> KeptAnswer | None:
        """Take a request that is to be carried out; the answer where it was carried out before.

        Raises:
            ProblemError: 409 another request had this key, or it is under way, or what became of it
                cannot be told; 429 the caller has too many.
            WriteFailed: Nothing was begun.
        """
        place = (request.key_id, request.idempotency_key)
        if place in self._memory.running:
            raise self._refusal("in_flight", "idempotency_in_flight", "is under way", _WAIT)
        self._memory.running.add(place)
        try:
            found = await self._write(lambda connection: self._begun(connection, request))
            if found is None:
                return None
            answer = self._answer_of(request, found)
        except BaseException:
            self._memory.running.discard(place)
            raise
        self._memory.running.discard(place)
        self._repeats.labels("replayed").inc()
        return answer

    async def finish(self, request: KeptRequest, answer: KeptAnswer) -> None:
        """Keep the answer of a request that `begin` took; a secret stays in memory.

        Raises:
            WriteFailed: The outcome stays unknown.
        """
        place = (request.key_id, request.idempotency_key)
        kept = answer
        if "no-store" in answer.headers.get("cache-control", ""):
            kept = replace(answer, body=None)
            if len(self._memory.secrets) >= MOST_SECRETS:
                self._memory.secrets.pop(next(iter(self._memory.secrets)))
            self._memory.secrets[place] = (self._clock.now(), answer.body or b"")
        elif answer.body is not None and len(answer.body) > LARGEST_KEPT_BYTES:
            kept = replace(answer, body=None)
        try:
            await self._write(lambda connection: repository.keep_answer(connection, request, kept))
        finally:
            self._memory.running.discard(place)

    async def release(self, request: KeptRequest) -> None:
        """Forget a request that was refused before it did anything: a repeat is a first try.

        Raises:
            WriteFailed: The outcome stays unknown.
        """
        try:
            await self._write(lambda connection: repository.delete_kept(connection, request))
        finally:
            self._memory.running.discard((request.key_id, request.idempotency_key))

    def abandon(self, request: KeptRequest) -> None:
        """Leave a request whose outcome nobody knows as it stands."""
        self._memory.running.discard((request.key_id, request.idempotency_key))

    async def expire(self) -> int:
        """Forget what is a day old, and secrets after an hour; returns how many of the first.

        Raises:
            WriteFailed: To be tried again.
        """
        now = self._clock.now()
        for place, (kept_at, _) in list(self._memory.secrets.items()):
            if kept_at <= now - SECRET_KEPT_S:
                del self._memory.secrets[place]
        return await self._write(
            lambda connection: repository.delete_older(connection, now - KEPT_S)
        )

    def _begun(self, connection: Connection, request: KeptRequest) -> KeptAnswer | None:
        now = self._clock.now()
        found = repository.read_kept(connection, request, now - KEPT_S)
        if found is None:
            if repository.count_kept(connection, request.key_id) >= MOST_KEPT:
                raise ProblemError(
                    429,
                    "too_many_idempotency_keys",
                    f"this key has used {MOST_KEPT} idempotency keys within a day",
                    "Send requests that need no protection against repetition without one.",
                )
            repository.insert_begun(connection, request, self._run_id, now)
            return None
        if found.fingerprint != request.fingerprint:
            raise self._refusal(
                "reused",
                "idempotency_key_reused",
                "was used for another request",
                "Make a new key for each request; repeat only the very same one under it.",
            )
        if found.answer is None:
            raise self._refusal(
                "unknown",
                "idempotency_outcome_unknown",
                "was begun, and the server ended or failed before it could keep the answer",
                "Read what the request was to change; if it was not, repeat it with a new key.",
            )
        return found.answer

    def _answer_of(self, request: KeptRequest, answer: KeptAnswer) -> KeptAnswer:
        if answer.body is not None:
            return answer
        held = self._memory.secrets.get((request.key_id, request.idempotency_key))
        if held is None:
            raise self._refusal(
                "gone",
                "idempotency_answer_gone",
                f"was carried out and answered {answer.code}; a secret or a large answer is not "
                "kept on disk",
                "Read what it made; revoke a key that nobody has received, and make another.",
            )
        return replace(answer, body=held[1])

    def _refusal(self, outcome: str, code: str, what: str, mend: str) -> ProblemError:
        self._repeats.labels(outcome).inc()
        return ProblemError(409, code, f"the request under this Idempotency-Key {what}", mend)

    async def _write(self, run: Callable[[Connection], T]) -> T:
        return await asyncio.wrap_future(self._database.writer.submit(run))


_WAIT = "Wait a second and repeat the request: it then gets the same answer."


def fingerprint_of(method: str, path: str, query: bytes, body: bytes) -> str:
    """SHA-256 hex of what a request says."""
    digest = hashlib.sha256(f"{method} {path}?".encode("utf-8", "surrogatepass") + query + b"\n")
    digest.update(body)
    return digest.hexdigest()


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an answer that a repeat gets too."""
    return {name: headers[name] for name in _KEPT_HEADERS if name in headers}


_KEPT_HEADERS = ("content-type", "cache-control", "location", "etag")
