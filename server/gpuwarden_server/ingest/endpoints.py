"""POST /v1/ingest: from bytes to a decoded batch, and the answer back."""

from __future__ import annotations

import asyncio

from gpuwarden_server.access.authorisation import authorise
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.front import (
    INGEST,
    Receive,
    Scope,
    Send,
    header_of,
    read_body,
    send_body,
)
from gpuwarden_server.ingest.direct import INLINE_BODY_BYTES
from gpuwarden_server.ingest.meters import IngestMeters
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_wire.batches import CONTENT_TYPE, Batch
from gpuwarden_wire.codec import (
    MAX_BODY_BYTES,
    BatchTooLarge,
    Encoding,
    WireError,
    decode_batch,
    decompress,
    encode_json,
)


class IngestHandler:
    """The raw handler of POST /v1/ingest."""

    def __init__(self, ring: KeyRing, service: IngestService, meters: IngestMeters) -> None:
        self._ring = ring
        self._service = service
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call.

        Raises:
            ProblemError: The batch is refused; it was counted.
        """
        try:
            answer = await self._answer(scope, receive)
        except ProblemError as error:
            self._meters.refused.labels(error.code).inc()
            raise
        await send_body(send, 200, "application/json", answer)

    async def _answer(self, scope: Scope, receive: Receive) -> bytes:
        principal = authorise(
            self._ring, (INGEST.method, INGEST.path), header_of(scope, b"authorization")
        )
        encoding = _encoding_of(scope)
        body = await read_body(scope, receive, MAX_BODY_BYTES, _too_large)
        batch = await _decode(body, encoding)
        if principal is not None:
            principal.require_nodes([self._service.present_name(batch.node_id)])
        host, port = scope.get("client") or ("", 0)
        return encode_json(await self._service.take(batch, (host, port)))


def _encoding_of(scope: Scope) -> Encoding:
    content_type = (header_of(scope, b"content-type") or "").partition(";")[0].strip().lower()
    if content_type != CONTENT_TYPE:
        raise ProblemError(
            415, "wrong_media_type", f"Content-Type {content_type!r}", f"Send {CONTENT_TYPE}."
        )
    name = (header_of(scope, b"content-encoding") or "identity").strip().lower()
    try:
        return Encoding(name)
    except ValueError:
        raise ProblemError(
            415, "wrong_encoding", f"Content-Encoding {name!r}", "Send zstd, gzip or none."
        ) from None


async def _decode(body: bytes, encoding: Encoding) -> Batch:
    try:
        if len(body) <= INLINE_BODY_BYTES:
            return _batch_of(body, encoding)
        return await asyncio.to_thread(_batch_of, body, encoding)
    except BatchTooLarge as error:
        raise _too_large(str(error)) from error
    except WireError as error:
        raise ProblemError(
            400, "not_a_batch", str(error), "The agent sets the batch aside: report it."
        ) from error


def _batch_of(body: bytes, encoding: Encoding) -> Batch:
    return decode_batch(decompress(body, encoding))


def _too_large(detail: str) -> ProblemError:
    return ProblemError(
        413, "batch_too_large", f"{detail}, at most {MAX_BODY_BYTES}", "Halve the batch."
    )
