"""Entity tags and compression around every route.

A route that says nothing gets a weak tag over the bytes of its answer; one that knows a cheaper tag
(the epoch of the feed) sets `ETag` itself, and may answer 304 before it makes a body
(`core.conditional.matches`). Streams pass through untouched.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Mapping
from types import MappingProxyType

import zstandard
from starlette.datastructures import Headers, MutableHeaders

from gpuwarden_server.core.conditional import body_tag, matches
from gpuwarden_server.front import AsgiApp, Message, Receive, Scope, Send

LEAST_COMPRESSED_BYTES = 1024
# A megabyte takes zstd about 3 ms: from here on the event loop is spared.
INLINE_BYTES = 256 * 1024
_PREFIXES = ("/v1/", "/openapi.json")
_TEXTUAL = ("application/json", "application/problem+json", "text/")


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(body)


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


_CODINGS: Mapping[str, Callable[[bytes], bytes]] = MappingProxyType({"zstd": _zstd, "gzip": _gzip})
"""By preference."""


class Answers:
    """ASGI middleware: ETag and 304 on reads, zstd or gzip where the caller takes it."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, _Answer(scope, send))


class _Answer:
    """`send` of one request: holds the head back until the body shows what it is."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, self._start = self._start, None
        if start is None or message["type"] != "http.response.body" or message.get("more_body"):
            if start is not None:
                await self._send(start)
            await self._send(message)
            return
        await self._finish(start, message.get("body", b""))

    async def _finish(self, start: Message, body: bytes) -> None:
        asked = Headers(scope=self._scope)
        headers = MutableHeaders(raw=list(start["headers"]))
        status = start["status"]
        if self._is_read and status == 200:
            tag = headers.setdefault("etag", body_tag(body))
            headers.setdefault("cache-control", "private, no-cache")
            if matches(asked.get("if-none-match"), tag):
                status, body = 304, b""
                del headers["content-length"], headers["content-type"]
        textual = _is_textual(headers)
        coding = _coding_of(asked.get("accept-encoding", "")) if textual else None
        if coding is not None and len(body) >= LEAST_COMPRESSED_BYTES:
            body = await _compressed(body, coding)
            headers["content-encoding"] = coding
            headers["content-length"] = str(len(body))
        if status == 304 or textual:
            headers.add_vary_header("Accept-Encoding")
        await self._send({**start, "status": status, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})

    @property
    def _is_read(self) -> bool:
        path: str = self._scope["path"]
        return self._scope["method"] == "GET" and path.startswith(_PREFIXES)


async def _compressed(body: bytes, coding: str) -> bytes:
    if len(body) <= INLINE_BYTES:
        return _CODINGS[coding](body)
    return await asyncio.to_thread(_CODINGS[coding], body)


def _is_textual(headers: MutableHeaders) -> bool:
    said = headers.get("content-type", "")
    return said.startswith(_TEXTUAL) and "content-encoding" not in headers


def _coding_of(accepted: str) -> str | None:
    """The best coding that an Accept-Encoding allows (RFC 9110, 12.5.3); None for none."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        weights[name.strip()] = _weight(weight)
    allowed = [name for name in _CODINGS if weights.get(name, weights.get("*", 0.0)) > 0]
    return max(allowed, key=lambda name: weights.get(name, 0.0), default=None)


def _weight(parameter: str) -> float:
    name, _, value = parameter.strip().partition("=")
    try:
        return float(value) if name == "q" else 1.0
    except ValueError:
        return 0.0
