"""POST /api/v1/write: from bytes to samples, and the answer that Prometheus goes by."""

from __future__ import annotations

import asyncio

from gpuwarden_server.access.authorisation import authorise
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.doors.meters import DoorMeters
from gpuwarden_server.doors.remote_write import RemoteWriteDoor
from gpuwarden_server.doors.write_request import (
    MAX_COMPRESSED_BYTES,
    Sample,
    WriteRequestError,
    WriteRequestTooLarge,
    decompress,
    read_samples,
)
from gpuwarden_server.front import (
    REMOTE_WRITE,
    REMOTE_WRITE_TYPE,
    Receive,
    Scope,
    Send,
    header_of,
    read_body,
    send_body,
)

_INLINE_BYTES = 64 * 1024
"""Larger bodies are read in a thread: 2,000 samples take 10 ms."""


class RemoteWriteHandler:
    """The raw handler of POST /api/v1/write.

    Prometheus sends again after 5xx and 429, and drops what gets another 4xx.
    """

    def __init__(self, ring: KeyRing, door: RemoteWriteDoor, meters: DoorMeters) -> None:
        self._ring = ring
        self._door = door
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call.

        Raises:
            ProblemError: The request is refused; it was counted.
        """
        try:
            with self._meters.seconds.time():
                await self._take(scope, receive)
        except ProblemError as error:
            self._meters.requests.labels(error.code).inc()
            raise
        self._meters.requests.labels("taken").inc()
        await send_body(send, 204, REMOTE_WRITE_TYPE, b"")

    async def _take(self, scope: Scope, receive: Receive) -> None:
        route = (REMOTE_WRITE.method, REMOTE_WRITE.path)
        principal = authorise(self._ring, route, header_of(scope, b"authorization"))
        _check_form(scope)
        body = await read_body(scope, receive, MAX_COMPRESSED_BYTES, _too_large)
        samples = await _samples_of(body)
        await self._door.take(samples, lambda node_id: _covers(principal, node_id))


def _covers(principal: Principal | None, node_id: str) -> bool:
    return principal is None or principal.covers(node_id)


def _check_form(scope: Scope) -> None:
    content_type = (header_of(scope, b"content-type") or "").lower().replace(" ", "")
    kind, _, parameters = content_type.partition(";")
    if kind != REMOTE_WRITE_TYPE or "io.prometheus.write.v2" in parameters:
        raise ProblemError(
            415,
            "wrong_media_type",
            f"Content-Type {content_type[:200]!r}",
            f"Send {REMOTE_WRITE_TYPE} of remote write 1.0 (protobuf_message: "
            "prometheus.WriteRequest).",
        )
    encoding = (header_of(scope, b"content-encoding") or "").strip().lower()
    if encoding != "snappy":
        raise ProblemError(
            415,
            "wrong_encoding",
            f"Content-Encoding {encoding[:200]!r}",
            "Send snappy; vmagent does with -remoteWrite.forcePromProto.",
        )


async def _samples_of(body: bytes) -> list[Sample]:
    try:
        if len(body) <= _INLINE_BYTES:
            return _read(body)
        return await asyncio.to_thread(_read, body)
    except WriteRequestTooLarge as error:
        raise _too_large(str(error)) from error
    except WriteRequestError as error:
        raise ProblemError(
            400, "not_a_write_request", str(error), "Send what Prometheus' remote_write sends."
        ) from error


def _read(body: bytes) -> list[Sample]:
    return list(read_samples(decompress(body)))


def _too_large(detail: str) -> ProblemError:
    return ProblemError(
        413,
        "write_too_large",
        f"{detail}; at most {MAX_COMPRESSED_BYTES} bytes are taken",
        "Lower max_samples_per_send in queue_config.",
    )
