"""The webhook as a part of the app."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.store.database import Database
from gpuwarden_server.webhooks.outbox import Outbox
from gpuwarden_server.webhooks.repository import OutboxRepository
from gpuwarden_server.webhooks.sender import WebhookSender, checked_endpoint


class Webhooks:
    """Sender and outbox of one endpoint.

    Attributes:
        outbox: What the judge tells its facts to.
    """

    def __init__(self, sender: WebhookSender) -> None:
        self._sender = sender
        self.outbox = Outbox(sender.wake)

    async def start(self) -> None:
        """Begin to deliver, what an earlier process left first."""
        self._sender.start()

    async def stop(self) -> None:
        """End after the attempt under way."""
        await asyncio.to_thread(self._sender.stop)

    def probe(self) -> str | None:
        """Why nothing is delivered, None where the sender runs."""
        return None if self._sender.alive else "the webhook sender has ended"


def make_webhooks(
    url: str | None,
    secret: str | None,
    retry_base_s: float,
    state: Database,
    clock: Clock,
    registry: CollectorRegistry,
) -> Webhooks | None:
    """The webhook of the settings; None where none is set.

    Raises:
        StartError: The URL or the secret cannot be used, or one is set without the other.
    """
    if url is None and secret is None:
        return None
    if url is None or secret is None:
        raise StartError(
            "GPUWARDEN_WEBHOOK_URL and GPUWARDEN_WEBHOOK_SECRET go together",
            "Set both, or neither. A new secret: echo whsec_$(openssl rand -base64 32)",
        )
    endpoint = checked_endpoint(url, secret, retry_base_s)
    return Webhooks(WebhookSender(endpoint, OutboxRepository(state), clock, registry))
