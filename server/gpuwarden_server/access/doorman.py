"""The outermost layer: how often, and how much at once, before anything else is done.

Every request passes here, those of the raw routes too. Who brings a valid key is limited by that
key, whatever address it comes from: a fleet behind one NAT is one address. Everybody else is
limited by address, and more tightly after refused credentials: nobody guesses keys. Who may not
call a route is refused before anything of a body is read or parsed, and nobody makes the server
read large bodies. Who has a valid key never feels the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, Counter

from gpuwarden_server.access.authorisation import authorise, route_of
from gpuwarden_server.access.domain import KeyRecord
from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.access.limits import Buckets, Rate
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.core.problems import headers_of
from gpuwarden_server.front import (
    RAW_ROUTES,
    AsgiApp,
    Message,
    Receive,
    Scope,
    Send,
    header_of,
    send_problem,
)

LARGEST_BODY_BYTES = 8 * 1024 * 1024
"""Of a request with a valid key."""
LARGEST_STRANGER_BYTES = 64 * 1024
"""Of a request without one: an enrolment needs a few hundred bytes."""
# They refuse a stranger before they read, and bound a body before and after unpacking it.
_OWN_BOUNDS = frozenset(route.path for route in RAW_ROUTES)
_ENROL = "/v1/enrol"
_TELL_EACH_S = 60.0
_CHALLENGE = (b"www-authenticate", b'Basic realm="gpuwarden"')
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DoorRules:
    """How often.

    Attributes:
        key: Requests of each key.
        address: Requests of each address without a valid key.
        failures: Refused credentials of each address.
    """

    key: Rate
    address: Rate
    failures: Rate


class Doorman:
    """ASGI middleware around all routes."""

    def __init__(
        self,
        app: AsgiApp,
        ring: KeyRing,
        clock: Clock,
        rules: DoorRules,
        registry: CollectorRegistry,
        keys: Buckets,
    ) -> None:
        """Put it before `app`.

        Args:
            app: What serves.
            ring: The keys.
            clock: Time.
            rules: How often.
            registry: Metrics.
            keys: Buckets of `rules.key`; who takes requests without ASGI takes from them too.
        """
        self._app = app
        self._ring = ring
        self._clock = clock
        self._keys = keys
        self._addresses = Buckets(rules.address)
        self._failures = Buckets(rules.failures)
        self._told_at = -math.inf
        self._limited = Counter(
            "gpuwarden_requests_limited_total",
            "Requests refused because there were too many, or they were too large.",
            ["by"],
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = (scope.get("client") or ("", 0))[0]
        record = self._valid_key(scope)
        wait_s, by = self._wait(scope, record, address)
        if wait_s > 0:
            self._limited.labels(by=by).inc()
            await send_problem(send, _too_many(by), {"Retry-After": str(math.ceil(wait_s))})
            return
        if record is None:
            send = self._watched(scope, send, address)
        if scope["path"] in _OWN_BOUNDS:
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await send_problem(send, refusal, headers_of(refusal) | _ending(scope))
            return
        most = LARGEST_STRANGER_BYTES if record is None else LARGEST_BODY_BYTES
        body = _BoundedBody(receive, send, most)
        if body.announced(header_of(scope, b"content-length")):
            await self._app(scope, body.receive, body.send)
        else:
            await body.refuse()
        if body.refused:
            self._limited.labels(by="size").inc()

    def _refusal(self, scope: Scope) -> ProblemError | None:
        """Why who asks may not call the route, before anything of a body is read."""
        route = route_of(scope["method"], scope["path"])
        try:
            if route is not None:
                authorise(self._ring, route, header_of(scope, b"authorization"))
        except ProblemError as error:
            return error
        return None

    def _valid_key(self, scope: Scope) -> KeyRecord | None:
        try:
            return self._ring.find(header_of(scope, b"authorization"))
        except ProblemError:
            return None  # expired: the route says so

    def _wait(self, scope: Scope, record: KeyRecord | None, address: str) -> tuple[float, str]:
        """Seconds until the request may come again, 0 where it may now; and by which limit."""
        now = self._clock.monotonic()
        if record is not None:
            return self._keys.take(record.id, now), "key"
        if _shows_credentials(scope):
            wait_s = self._failures.wait_s(address, now)
            if wait_s > 0:
                self._tell(address, now)
                return wait_s, "failures"
        return self._addresses.take(address, now), "address"

    def _tell(self, address: str, now: float) -> None:
        if now - self._told_at >= _TELL_EACH_S:
            self._told_at = now
            _log.warning("credentials_refused_often", address=address)

    def _watched(self, scope: Scope, send: Send, address: str) -> Send:
        """A `send` that counts refused credentials, and tells who is no browser of Basic.

        A page's own requests are left without that challenge: the browser would ask its user for a
        name and a password.
        """
        from_page = header_of(scope, b"sec-fetch-mode") is not None

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                if _shows_credentials(scope):
                    self._failures.take(address, self._clock.monotonic())
                if not from_page:
                    message = {**message, "headers": [*message["headers"], _CHALLENGE]}
            await send(message)

        return watch


class _BoundedBody:
    """One request's body: where it grows beyond the bound, the caller is told, whoever reads it."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive = receive
        self._send = send
        self._most = most
        self._size = 0
        self._started = False
        self.refused = False

    def announced(self, length: str | None) -> bool:
        """Whether the length that the head announces is within the bound."""
        return length is None or not length.isdecimal() or int(length) <= self._most

    async def refuse(self) -> None:
        """Tell that it is too large."""
        self.refused = True
        error = ProblemError(
            413,
            "body_too_large",
            f"the body is larger than {self._most} bytes",
            "Send less at once, and with a valid key.",
        )
        # What is not read cannot be skipped: the connection ends with the answer.
        await send_problem(self._send, error, {"Connection": "close"})

    async def receive(self) -> Message:
        """What comes; nothing more once it is too large."""
        if self.refused:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._size += len(message.get("body", b""))
        if self._size > self._most and not self._started:
            await self.refuse()
            return {"type": "http.disconnect"}
        return message

    async def send(self, message: Message) -> None:
        """The answer, unless the caller has one already."""
        if not self.refused:
            self._started = True
            await self._send(message)


def _ending(scope: Scope) -> dict[str, str]:
    """Headers that end the connection where a body follows that nobody wants to read."""
    length = header_of(scope, b"content-length")
    is_short = length is None or (length.isdecimal() and int(length) <= LARGEST_STRANGER_BYTES)
    is_open_ended = header_of(scope, b"transfer-encoding") is not None
    return {} if is_short and not is_open_ended else {"Connection": "close"}


def _shows_credentials(scope: Scope) -> bool:
    return scope["path"] == _ENROL or header_of(scope, b"authorization") is not None


def _too_many(by: str) -> ProblemError:
    what = {
        "key": "this key asks too often",
        "address": "this address asks too often without a valid key",
        "failures": "this address has shown credentials that were refused too often",
    }[by]
    return ProblemError(429, "too_many_requests", what, "Wait as long as Retry-After says.")
