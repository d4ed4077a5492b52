"""ASGI middleware that takes the header Idempotency-Key on every write."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.datastructures import Headers

from gpuwarden_server.access.authorisation import ROUTE_GRANTS
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.front import (
    AsgiApp,
    Message,
    Receive,
    Scope,
    Send,
    read_body,
    send_body,
    send_problem,
)
from gpuwarden_server.store.problems import storage_problem
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_server.web.domain import KeptAnswer, KeptRequest
from gpuwarden_server.web.idempotency import IdempotencyBook, fingerprint_of, kept_headers
from gpuwarden_server.web.methods import METHODS
from gpuwarden_wire.codec import decode_problem

HEADER = "Idempotency-Key"
KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
LARGEST_BODY_BYTES = 8 * 1024 * 1024
_KEY = re.compile(KEY_PATTERN[:-1] + r"\Z")
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_QUESTIONS = frozenset(route for route, grant in ROUTE_GRANTS.items() if grant.reads)
"""Reads that carry a body: they change nothing, so a key means nothing there."""
# Refused before anything ran: credentials, limits, timeouts, size.
_UNTRIED = frozenset({401, 403, 408, 413, 429})
_UNKNOWN_CODES = frozenset({"storage_slow", "internal"})
"""Of answers from 500 on after which the write may have been done all the same."""


def takes_key(method: str, path: str) -> bool:
    """Whether a route, by its path or template, takes an idempotency key."""
    return method in _WRITES and (method, path) not in _QUESTIONS


class Repeats:
    """The middleware; a request without the header, or without a valid key, passes through."""

    def __init__(self, app: AsgiApp, book: IdempotencyBook, ring: KeyRing) -> None:
        """Put it before `app`.

        Args:
            app: What carries requests out.
            book: What was asked and answered.
            ring: The keys.
        """
        self._app = app
        self._book = book
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call."""
        if scope["type"] != "http" or not _is_write(scope):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        chosen = headers.get(HEADER)
        principal = self._principal(headers) if chosen is not None else None
        if chosen is None or principal is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._once(scope, receive, send, (principal.key_id, chosen))
        except ProblemError as error:
            await send_problem(send, error)
        except WriteFailed as error:
            await send_problem(send, storage_problem(error))

    def _principal(self, headers: Mapping[str, str]) -> Principal | None:
        try:
            return self._ring.authenticate(headers.get("authorization"))
        except ProblemError:
            return None  # the route itself answers 401

    async def _once(
        self, scope: Scope, receive: Receive, send: Send, place: tuple[str, str]
    ) -> None:
        key_id, chosen = place
        if _KEY.match(chosen) is None:
            raise ProblemError(
                422,
                "invalid_value",
                f"header.{HEADER}: {chosen[:80]!r}: 1 to 255 visible ASCII characters wanted",
                "A random UUID for each request does well.",
            )
        body = await read_body(scope, receive, LARGEST_BODY_BYTES, _too_large)
        fingerprint = fingerprint_of(
            scope["method"], scope["path"], scope.get("query_string", b""), body
        )
        request = KeptRequest(key_id, chosen, fingerprint)
        earlier = await self._book.begin(request)
        if earlier is not None:
            headers = {k: v for k, v in earlier.headers.items() if k != "content-type"}
            content_type = earlier.headers.get("content-type", "application/json")
            headers["Idempotency-Replayed"] = "true"
            await send_body(send, earlier.code, content_type, earlier.body or b"", headers)
            return
        await self._carry_out(scope, _again(body, receive), send, request)

    async def _carry_out(
        self, scope: Scope, receive: Receive, send: Send, request: KeptRequest
    ) -> None:
        messages: list[Message] = []

        async def hold(message: Message) -> None:
            messages.append(message)

        try:
            await self._app(scope, receive, hold)
        except BaseException:
            self._book.abandon(request)
            raise
        if not messages:
            self._book.abandon(request)
            return
        answer = _answer_of(messages)
        if answer.code in _UNTRIED or (answer.code >= 500 and not _is_unknown(answer)):
            await self._book.release(request)
        elif answer.code >= 500:
            self._book.abandon(request)
        else:
            await self._book.finish(request, answer)
        for message in messages:
            await send(message)


def _is_write(scope: Scope) -> bool:
    """Whether this is a write of a route that there is; the others answer 404 and 405."""
    method, path = scope["method"], scope["path"]
    return takes_key(method, path) and method in METHODS.of(path)


def _answer_of(messages: list[Message]) -> KeptAnswer:
    head = Headers(raw=messages[0]["headers"])
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return KeptAnswer(messages[0]["status"], kept_headers(head), body)


def _is_unknown(answer: KeptAnswer) -> bool:
    problem = decode_problem(answer.body or b"")
    return problem is None or problem.code in _UNKNOWN_CODES


def _too_large(detail: str) -> ProblemError:
    said = f"{detail}, at most {LARGEST_BODY_BYTES}"
    return ProblemError(413, "body_too_large", said, "Send less at once.")


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read, then what comes."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
