"""The small ASGI front: routes too hot, or too long-lived, for FastAPI's routing.

The front takes its routes before FastAPI sees them (routing and validation would cost ten times
what taking a batch costs); everything else passes through. RAW_ROUTES is the one list of them: the
OpenAPI document and the authorisation table are made from it too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.problems import PROBLEM_TYPE, headers_of
from gpuwarden_wire.batches import CONTENT_TYPE
from gpuwarden_wire.codec import encode_json

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


HEAD_ONLY = "gpuwarden.head_only"
"""Key of the scope of a GET that came as HEAD: a stream ends with its head."""
ABORT = "gpuwarden.abort"
"""Key of the scope: a function that drops the connection at once, unsent bytes included."""


class RawHandler(Protocol):
    """Serves one raw route. A ProblemError raised before the answer began becomes a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call of type http."""
        ...


@dataclass(frozen=True, slots=True)
class RawRoute:
    """A route that the front serves.

    Attributes:
        method: HTTP method.
        path: Exact path.
        operation: Its OpenAPI operation.
    """

    method: str
    path: str
    operation: Mapping[str, Any] = field(hash=False, compare=False)


_PROBLEM: Mapping[str, Any] = {"schema": {"$ref": "#/components/schemas/Problem"}}

INGEST = RawRoute(
    "POST",
    "/v1/ingest",
    {
        "operationId": "ingest_batch",
        "summary": "Take one batch of an agent",
        "tags": ["ingest"],
        "parameters": [
            {
                "name": "Content-Encoding",
                "in": "header",
                "schema": {"type": "string", "enum": ["identity", "gzip", "zstd"]},
            }
        ],
        "requestBody": {
            "required": True,
            "description": "One msgpack map; docs/wire.md has the fields.",
            "content": {CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "200": {
                "description": "Acknowledgement",
                "content": {
                    "application/json": {"schema": {"$ref": "#/components/schemas/Acknowledgement"}}
                },
            },
            "400": {"description": "Not a batch", "content": {PROBLEM_TYPE: _PROBLEM}},
            "428": {"description": "A schema is needed first", "content": {PROBLEM_TYPE: _PROBLEM}},
        },
    },
)
_NARROWED: tuple[Mapping[str, Any], ...] = (
    {
        "name": "node",
        "in": "query",
        "description": "Only what is about these nodes; repeatable.",
        "schema": {"type": "array", "items": {"type": "string"}},
        "example": ["gpu-017"],
    },
    {
        "name": "pool",
        "in": "query",
        "description": "Only what is about nodes of these pools, or of the nodes named; "
        "repeatable.",
        "schema": {"type": "array", "items": {"type": "string"}},
        "example": ["default"],
    },
)


def _stream(path: str, operation: str, summary: str, events: str) -> RawRoute:
    """A stream of stored facts: /v1/TAG/stream."""
    resume = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "FEED_ID:ROW of the last event that the reader has.",
        "schema": {"type": "string"},
        "example": "0f4ea1d0c1b29d2c6f0a5a0e4a528a51:4711",
    }
    answer = {
        "description": f"Events {events}; docs/streams.md has their forms.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return RawRoute(
        "GET",
        path,
        {
            "operationId": operation,
            "summary": summary,
            "tags": [path.split("/")[2]],
            "parameters": [resume, *(dict(one) for one in _NARROWED)],
            "responses": {"200": answer},
        },
    )


INCIDENT_STREAM = _stream(
    "/v1/incidents/stream",
    "follow_incidents",
    "Moves of incidents as server-sent events, resumable",
    "`incident` and `position`",
)
STATE_STREAM = _stream(
    "/v1/states/stream",
    "follow_states",
    "Changes of entities' states as server-sent events, resumable",
    "`entity_state` and `position`",
)
EXCLUSION_STREAM = RawRoute(
    "GET",
    "/v1/exclusions/stream",
    {
        "operationId": "follow_exclusions",
        "summary": "Changes of the exclusion set as server-sent events, resumable",
        "tags": ["exclusions"],
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "description": "FEED_ID:EPOCH of the last event that the reader has.",
                "schema": {"type": "string"},
                "example": "0f4ea1d0c1b29d2c6f0a5a0e4a528a51:17",
            }
        ],
        "responses": {
            "200": {
                "description": "Events `exclusions` and `state`",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
    },
)

REMOTE_WRITE_TYPE = "application/x-protobuf"
REMOTE_WRITE = RawRoute(
    "POST",
    "/api/v1/write",
    {
        "operationId": "write_samples",
        "summary": "Take samples of Prometheus' remote write 1.0",
        "tags": ["doors"],
        "requestBody": {
            "required": True,
            "description": "A protobuf WriteRequest in snappy's block format; docs/doors.md says "
            "which series mean what.",
            "content": {REMOTE_WRITE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            "204": {"description": "Taken, or left out and counted"},
            "400": {"description": "Not a write request", "content": {PROBLEM_TYPE: _PROBLEM}},
        },
    },
)

RAW_ROUTES = (INGEST, EXCLUSION_STREAM, INCIDENT_STREAM, STATE_STREAM, REMOTE_WRITE)


class Front:
    """ASGI middleware that serves the raw routes."""

    def __init__(self, app: AsgiApp, handlers: Mapping[RawRoute, RawHandler]) -> None:
        """Put the front before `app`.

        Args:
            app: What serves everything else.
            handlers: One handler a raw route.
        """
        self._app = app
        self._paths: dict[str, dict[str, RawHandler]] = {}
        for route, handler in handlers.items():
            self._paths.setdefault(route.path, {})[route.method] = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "HEAD":
            # RFC 9110 9.3.2: what GET answers, without the body; the table grants it as GET.
            await self._serve({**scope, "method": "GET", HEAD_ONLY: True}, receive, _bodiless(send))
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self._paths.get(scope["path"])
        if methods is None:
            await self._app(scope, receive, send)
            return
        handler = methods.get(scope["method"])
        try:
            if handler is None:
                await _refuse_method(scope, send, methods)
                return
            await handler(scope, receive, send)
        except ProblemError as error:
            await send_problem(send, error)


async def _refuse_method(scope: Scope, send: Send, allowed: Iterable[str]) -> None:
    said = f"{scope['method']} {scope['path']}"
    error = ProblemError(405, "method_not_allowed", said, "See /docs for the methods.")
    # RFC 9110 15.5.6: a 405 names what is allowed.
    await send_problem(send, error, {"Allow": ", ".join(sorted(allowed))})


def _bodiless(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head


async def send_problem(
    send: Send, error: ProblemError, headers: Mapping[str, str] | None = None
) -> None:
    """Answer with problem details."""
    body = encode_json(error.problem())
    lines = {**headers_of(error), **(headers or {})}
    await send_body(send, error.status, PROBLEM_TYPE, body, lines)


async def send_body(
    send: Send,
    status: int,
    content_type: str,
    body: bytes,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Answer with a whole body."""
    lines = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
    lines += [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})


def header_of(scope: Scope, name: bytes) -> str | None:
    """The first header `name` (lower case) of a request."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


async def read_body(
    scope: Scope, receive: Receive, most: int, too_large: Callable[[str], ProblemError]
) -> bytes:
    """The whole body of a request, of at most `most` bytes.

    Raises:
        ProblemError: `too_large` of the size, or 400 where the connection ended before the body.
    """
    length = header_of(scope, b"content-length")
    if length is not None and int(length) > most:
        raise too_large(f"{length} bytes")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProblemError(400, "cut_short", "the connection ended before the body did")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise too_large(f"more than {most} bytes")
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def document_raw_routes(app: FastAPI) -> None:
    """Put the raw routes into the app's OpenAPI document."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        for route in RAW_ROUTES:
            path = document["paths"].setdefault(route.path, {})
            path[route.method.lower()] = dict(route.operation)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it
