"""A URL that is called while the fleet is scored: who watches it is told when we fall silent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery
from gpuwarden_server.notifications.facts.outbox import moment_text
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.cases import Member
from gpuwarden_server.notifications.sending.channels.contract import Dispatch


class HeartbeatChannel:
    """Posts a small body."""

    def __init__(self, endpoint: Endpoint, poster: Poster) -> None:
        self._url = endpoint.urls[0]
        self._poster = poster

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """Nothing is ever queued for it."""
        return Delivery("a heartbeat takes no messages", hopeless=True)

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        return self._post(now)

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return self._post(now) if scoring else None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _post(self, now: float) -> Delivery:
        body = msgspec.json.encode({"type": "heartbeat", "timestamp": moment_text(now)})
        return delivery_of(self._poster.post(self._url, body, {}), now)
