"""Delivers the outbox to one endpoint, in a thread of its own."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event, Thread

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy.exc import SQLAlchemyError
from standardwebhooks import Webhook

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_server.webhooks.addresses import (
    AddressRefused,
    Resolve,
    allowed_address,
    resolve,
)
from gpuwarden_server.webhooks.domain import (
    KEEP_TRYING_S,
    Attempt,
    MessagePhase,
    OutboxMessage,
    retry_wait_s,
)
from gpuwarden_server.webhooks.repository import OutboxRepository

BATCH = 100
IDLE_WAIT_S = 30.0
TIMEOUT_S = 10.0
SHORTEST_SECRET = 24
"""Bytes, as the Standard Webhooks specification has it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where messages go.

    Attributes:
        url: http or https.
        secret: Standard Webhooks secret, "whsec_" and base64.
        retry_base_s: Mean wait after the first failure, seconds.
    """

    url: str
    secret: str
    retry_base_s: float = 5.0


def checked_endpoint(url: str, secret: str, retry_base_s: float) -> Endpoint:
    """The endpoint of the settings.

    Raises:
        StartError: The URL is not http(s) or the secret is not of Standard Webhooks' form.
    """
    target = httpx.URL(url)
    if target.scheme not in ("http", "https") or not target.host:
        raise StartError(
            f"GPUWARDEN_WEBHOOK_URL {url!r} is not an http or https URL",
            "Set it to the receiver's full URL, or unset it.",
        )
    if not _is_secret(secret):
        raise StartError(
            f"GPUWARDEN_WEBHOOK_SECRET is not whsec_ and base64 of {SHORTEST_SECRET} bytes or more",
            "Make one: echo whsec_$(openssl rand -base64 32)",
        )
    return Endpoint(url, secret, retry_base_s)


def _is_secret(secret: str) -> bool:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:
        return False
    return secret.startswith("whsec_") and len(key) >= SHORTEST_SECRET


class WebhookSender:
    """The delivery loop; `wake` after a commit that wrote messages."""

    def __init__(
        self,
        endpoint: Endpoint,
        outbox: OutboxRepository,
        clock: Clock,
        registry: CollectorRegistry,
        resolver: Resolve = resolve,
    ) -> None:
        self._endpoint = endpoint
        self._signer = Webhook(endpoint.secret)
        self._host = httpx.URL(endpoint.url).host  # the path may hold a token: never logged
        self._outbox = outbox
        self._clock = clock
        self._resolver = resolver
        self._jitter = random.Random()
        self._wake = Event()
        self._stopping = False
        self._failing = False
        self._paused_until = 0.0
        # A redirect is a failure: it could lead to an address that was never checked. The proxy of
        # the environment is not used: it would resolve the name again.
        self._client = httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)
        self._thread = Thread(target=self._run, name="webhooks", daemon=True)
        self._attempts = Counter(
            "gpuwarden_webhook_attempts_total",
            "Delivery attempts by outcome.",
            ["outcome"],
            registry=registry,
        )
        self._waiting = Gauge(
            "gpuwarden_webhook_waiting_messages", "Messages not yet delivered.", registry=registry
        )
        self._delay = Histogram(
            "gpuwarden_webhook_delay_seconds",
            "From the fact to its delivery.",
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 300, 3600, 86400),
            registry=registry,
        )

    def start(self) -> None:
        """Start delivering; what an earlier process left goes first."""
        self._thread.start()

    def wake(self) -> None:
        """Look at the outbox now; callable from any thread."""
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the attempt under way; what waits is delivered by the next process."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        self._client.close()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            wait_s = IDLE_WAIT_S
            try:
                wait_s = self._deliver_due()
            except (WriteFailed, SQLAlchemyError, TimeoutError) as error:
                # An attempt whose record is lost is made again: receivers drop repeats by id.
                _log.error("webhook_outbox_unavailable", error=str(error))
                wait_s = self._endpoint.retry_base_s
            if not self._stopping:
                self._wake.wait(wait_s)

    def _deliver_due(self) -> float:
        """Deliver what is due, oldest first; seconds until something is due again."""
        while not self._stopping:
            now = self._clock.now()
            if now < self._paused_until:
                return self._paused_until - now
            due = self._outbox.due(now, BATCH)
            if not due:
                count, first_due = self._outbox.backlog()
                self._waiting.set(count)
                return IDLE_WAIT_S if first_due is None else max(0.0, first_due - now)
            self._deliver_all(due)
        return 0.0

    def _deliver_all(self, due: list[OutboxMessage]) -> None:
        for message in due:
            if self._stopping:
                return
            attempt = self._post(message)
            next_at = attempt.at + retry_wait_s(
                message.attempts + 1, self._endpoint.retry_base_s, self._jitter
            )
            self._outbox.record_attempt(
                message, attempt, self._phase_after(message, attempt), next_at
            )
            if attempt.endpoint_is_down:
                # The messages behind this one would fail too: they wait with it, in order.
                self._paused_until = next_at
                self._waiting.set(self._outbox.backlog()[0])
                return

    def _phase_after(self, message: OutboxMessage, attempt: Attempt) -> MessagePhase:
        self._attempts.labels(outcome="delivered" if attempt.delivered else "failed").inc()
        self._note_change(attempt)
        if attempt.delivered:
            self._delay.observe(max(0.0, attempt.at - message.created_at))
            return MessagePhase.DELIVERED
        if attempt.at - message.created_at > KEEP_TRYING_S:
            _log.error("webhook_given_up", message=message.message_id, error=attempt.error)
            return MessagePhase.GIVEN_UP
        return MessagePhase.WAITING

    def _post(self, message: OutboxMessage) -> Attempt:
        at, began = self._clock.now(), self._clock.monotonic()
        http_status: int | None = None
        try:
            # The answer's body is not read: it could be of any length.
            response = self._client.send(self._request(message, at), stream=True)
            response.close()
            http_status = response.status_code
            error = "" if response.is_success else f"HTTP {http_status}"
        except (httpx.HTTPError, AddressRefused) as failure:
            error = f"{type(failure).__name__}: {failure}"
        return Attempt(at, self._clock.monotonic() - began, http_status, error[:500])

    def _request(self, message: OutboxMessage, at: float) -> httpx.Request:
        url = httpx.URL(self._endpoint.url)
        port = url.port or (443 if url.scheme == "https" else 80)
        address = allowed_address(url.host, port, self._resolver)
        moment = datetime.fromtimestamp(at, UTC)
        headers = {
            "host": url.netloc.decode(),
            "content-type": "application/json",
            "user-agent": "gpuwarden",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(int(at)),
            "webhook-signature": self._signer.sign(message.message_id, moment, message.payload),
        }
        return self._client.build_request(
            "POST",
            url.copy_with(host=str(address)),
            content=message.payload.encode(),
            headers=headers,
            # TLS still asks for and verifies the name, though the connection goes to the address.
            extensions={"sni_hostname": url.host},
        )

    def _note_change(self, attempt: Attempt) -> None:
        if not attempt.delivered and not self._failing:
            _log.warning("webhook_failing", host=self._host, error=attempt.error)
        elif attempt.delivered and self._failing:
            _log.info("webhook_recovered", host=self._host)
        self._failing = not attempt.delivered
