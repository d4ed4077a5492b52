"""A receiver over HTTP as the actuator: the requests of a command, signed as Standard Webhooks.

Any other scheduler, a ticket system, reset, reboot or replacement of nodes by a provider's API.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec
from standardwebhooks import Webhook

from gpuwarden_server.actuators.answers import decode_found
from gpuwarden_server.actuators.document import WebhookTarget
from gpuwarden_server.actuators.ports import ActuatorError, Poster
from gpuwarden_server.actuators.requests import (
    exclude_request,
    move_request,
    read_request,
    release_request,
    remedy_request,
)
from gpuwarden_server.core.answer import Answer
from gpuwarden_verdict.actuation import TAG, Act, Found, Wanted

LARGEST_ANSWER = 16 * 1024 * 1024
_MEND = "It must answer within timeout_s with 2xx; docs/actuators.md has the requests"
_SAID = 200


class WebhookActuator:
    """One receiver."""

    def __init__(self, target: WebhookTarget, poster: Poster) -> None:
        """Make it; see `WebhookTarget`."""
        self._target = target
        self._poster = poster
        self._signer = Webhook(target.secret)

    def read(self, nodes: Collection[str]) -> Mapping[str, Found]:
        """What it answers to {"act": "read"}, or to GET where an address for that is given."""
        if not self._target.read_url:
            body = self._post(read_request(nodes))
        else:
            body = self._get([("tag", TAG), *(("node", node) for node in sorted(nodes))])
        return decode_found(body, f"{self._target.common.name}'s receiver", _MEND)

    def exclude(self, wanted: Wanted) -> None:
        """Ask for {"act": "exclude"}."""
        self._post(exclude_request(wanted))

    def move(self, node_id: str, jobs: Collection[str]) -> None:
        """Ask for {"act": "move"}."""
        self._post(move_request(node_id, jobs))

    def remedy(self, act: Act, wanted: Wanted, reason: str) -> None:
        """Ask for {"act": "reset"}, "reboot" or "replace"."""
        self._post(remedy_request(act, wanted, reason))

    def release(self, node_id: str) -> None:
        """Ask for {"act": "release"}."""
        self._post(release_request(node_id))

    def _post(self, request: Mapping[str, object]) -> bytes:
        content = msgspec.json.encode(request)
        signed = self._signed(content)
        return self._taken(self._poster.post(self._target.url, content, signed, read=True))

    def _get(self, query: list[tuple[str, str]]) -> bytes:
        joint = "&" if "?" in self._target.read_url else "?"
        url = f"{self._target.read_url}{joint}{urlencode(query)}"
        return self._taken(self._poster.get(url, self._signed(b""), LARGEST_ANSWER))

    def _signed(self, content: bytes) -> dict[str, str]:
        """Headers of Standard Webhooks; a request that is made again has an id of its own."""
        now, message_id = datetime.now(UTC), f"msg_actuation_{secrets.token_hex(12)}"
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(message_id, now, content.decode()),
        }

    def _taken(self, answer: Answer) -> bytes:
        """The body of an answer that says yes.

        Raises:
            ActuatorError: None came, or it says no.
        """
        who = f"{self._target.common.name}'s receiver"
        if answer.http_status is None:
            raise ActuatorError(f"{who} did not answer: {answer.error}", _MEND)
        if not 200 <= answer.http_status < 300:
            said = answer.body[:_SAID].decode("utf-8", "replace").strip()
            raise ActuatorError(f"{who} answered {answer.http_status}: {said}", _MEND)
        return answer.body
