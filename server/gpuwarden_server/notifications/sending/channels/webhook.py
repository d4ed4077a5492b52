"""Standard Webhooks: every fact, signed with all secrets, so that one can replace another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from standardwebhooks import Webhook

from gpuwarden_server.core.ids import new_id
from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery, Message, MessageKind
from gpuwarden_server.notifications.facts.outbox import moment_text
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.cases import Member
from gpuwarden_server.notifications.sending.channels.asking import ApproveUrl, asked_rung
from gpuwarden_server.notifications.sending.channels.contract import Dispatch


class WebhookChannel:
    """Posts payloads as they were written; the id is the same for every attempt."""

    def __init__(self, endpoint: Endpoint, poster: Poster, approve_url: ApproveUrl) -> None:
        self._url = endpoint.urls[0]
        self._approve_url = approve_url
        self._signers = [Webhook(secret) for secret in endpoint.secrets]
        self._poster = poster

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`."""
        message = dispatch.message
        return self._post(message.message_id, self._with_link(message), dispatch.now)

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        told = {"text": "A test of gpuwarden: nothing happened."}
        body = {"type": "test", "timestamp": moment_text(now), "data": told}
        return self._post(f"msg_{new_id('test')}", msgspec.json.encode(body).decode(), now)

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _with_link(self, message: Message) -> str:
        """The payload; a link in advice is made for this attempt and kept nowhere."""
        if message.kind not in (MessageKind.DECISION_PROPOSED, MessageKind.DECISION_IN_FORCE):
            return message.payload
        body = msgspec.json.decode(message.payload)
        if asked_rung(body["data"]) and (url := self._approve_url(str(body["data"]["id"]))):
            body["data"]["approve_url"] = url
        return msgspec.json.encode(body).decode()

    def _post(self, message_id: str, payload: str, now: float) -> Delivery:
        moment = datetime.fromtimestamp(now, UTC)
        signatures = [signer.sign(message_id, moment, payload) for signer in self._signers]
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now)),
            "webhook-signature": " ".join(signatures),
        }
        return delivery_of(self._poster.post(self._url, payload.encode(), headers), now)
