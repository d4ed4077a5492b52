"""POST /v1/ingest without ASGI, for batches that the fast lane takes.

What an ASGI server does around each request costs more than all that is done with a batch of a
thousand readings. So uvicorn's protocol asks here first, with the whole request; whatever is not
plain (no valid key, another encoding, a batch that the lane declines) goes on as an ASGI request
and is answered by `IngestHandler`, so that no refusal is worded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpuwarden_server.access.authorisation import authorise
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.limits import Buckets
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.front import INGEST
from gpuwarden_server.ingest.lane import Ticket
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_wire.batches import CONTENT_TYPE
from gpuwarden_wire.codec import Encoding, WireError, decode_batch, decompress

# Larger bodies are decoded in a thread: 64 KiB take about a millisecond, 8 MiB a tenth of a second.
INLINE_BODY_BYTES = 64 * 1024
_TYPE = CONTENT_TYPE.encode()
_ENCODINGS = {encoding.encode(): encoding for encoding in Encoding}
_ROUTE = (INGEST.method, INGEST.path)


class IngestDoor:
    """Takes whole requests from the protocol, on the event loop."""

    path = INGEST.path.encode()

    def __init__(
        self,
        ring: KeyRing,
        service: IngestService,
        is_open: Callable[[], bool],
        key_buckets: Buckets,
        clock: Clock,
    ) -> None:
        """Make it.

        Args:
            ring: The keys.
            service: Takes batches.
            is_open: Whether this server takes any now: one that stands by does not.
            key_buckets: How often each key may ask, as the doorman counts it.
            clock: Time.
        """
        self._ring = ring
        self._service = service
        self._is_open = is_open
        self._key_buckets = key_buckets
        self._clock = clock

    def takes(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a POST with these headers (lower case) may be plain enough; its body follows."""
        length = headers.get(b"content-length", b"")
        return (
            headers.get(b"content-type") == _TYPE
            and length.isdigit()
            and int(length) <= INLINE_BODY_BYTES
            and b"expect" not in headers
            and b"upgrade" not in headers
        )

    def offer(self, headers: Mapping[bytes, bytes], body: bytes, ticket: Ticket) -> bool:
        """Take a request; False where it must go on as an ASGI request: nothing was done."""
        encoding = _ENCODINGS.get(headers.get(b"content-encoding", b"identity"))
        if encoding is None or not self._is_open():
            return False
        try:
            key = headers.get(b"authorization", b"").decode("latin-1")
            principal = authorise(self._ring, _ROUTE, key)
            if principal is None or self._is_limited(principal.key_id):
                return False
            batch = decode_batch(decompress(body, encoding))
            principal.require_nodes([self._service.present_name(batch.node_id)])
        except (ProblemError, WireError):
            return False
        if not self._service.offer(batch, ticket):
            return False
        self._key_buckets.take(principal.key_id, self._clock.monotonic())
        return True

    def _is_limited(self, key_id: str) -> bool:
        return self._key_buckets.wait_s(key_id, self._clock.monotonic()) > 0
