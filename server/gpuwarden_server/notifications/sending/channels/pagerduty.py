"""PagerDuty Events API v2: trigger, acknowledge and resolve of one de-duplication key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery, MessageKind
from gpuwarden_server.notifications.facts.outbox import moment_text
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.cases import CaseView, Member, line_of
from gpuwarden_server.notifications.sending.channels.contract import Dispatch

PATH = "/v2/enqueue"
LONGEST_SUMMARY = 1024
LINES_SHOWN = 50
TEST_KEY = "gpuwarden:test"

_ACTIONS = {
    MessageKind.ACKNOWLEDGE: "acknowledge",
    MessageKind.RESOLVE: "resolve",
}


class PagerDutyChannel:
    """One integration."""

    def __init__(self, endpoint: Endpoint, poster: Poster, console_url: str) -> None:
        self._url = endpoint.urls[0].rstrip("/") + PATH
        self._routing_key = endpoint.secrets[0]
        self._poster = poster
        self._console_url = console_url

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`; an update is a trigger with the same key, which pages nobody again."""
        view = dispatch.view
        if view is None:
            return Delivery("its case is not kept any more", hopeless=True)
        action = _ACTIONS.get(dispatch.message.kind, "trigger")
        event = self._event(action, view.case.key)
        if action == "trigger":
            event |= self._content(view)
        return self._enqueue(event, dispatch.now)

    def test(self, now: float) -> Delivery:
        """See `Channel`: a page of severity info that is resolved at once."""
        payload = {
            "summary": "A test of gpuwarden: nothing happened.",
            "source": "gpuwarden",
            "severity": "info",
        }
        event = self._event("trigger", TEST_KEY) | {"payload": payload, "client": "gpuwarden"}
        delivery = self._enqueue(event, now)
        if not delivery.delivered:
            return delivery
        return self._enqueue(self._event("resolve", TEST_KEY), now)

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _event(self, action: str, key: str) -> dict[str, Any]:
        return {"routing_key": self._routing_key, "event_action": action, "dedup_key": key}

    def _content(self, view: CaseView) -> dict[str, Any]:
        first = view.first
        shown = view.members[:LINES_SHOWN]
        payload = {
            "summary": f"{view.title}: {first.get('why')}"[:LONGEST_SUMMARY],
            "source": str(first["node_id"] or first["entity"]),
            "severity": view.severity.value,
            "timestamp": moment_text(view.case.opened_at),
            "component": str(first["entity"]),
            "group": str(first.get("pool") or "default"),
            "class": str(first["fault_class"]),
            "custom_details": {
                "action": first.get("action"),
                "incidents": [line_of(member.body) for member in shown],
                "not_shown": len(view.members) - len(shown),
                "labels": first.get("labels") or {},
            },
        }
        content: dict[str, Any] = {"payload": payload, "client": "gpuwarden"}
        if self._console_url:
            content["client_url"] = self._console_url
        return content

    def _enqueue(self, event: dict[str, Any], now: float) -> Delivery:
        answer = self._poster.post(self._url, msgspec.json.encode(event), {}, read=True)
        if answer.http_status == 400:
            # The event itself is refused: it will be the next time too.
            reason = answer.body[:300].decode("utf-8", "replace")
            return Delivery(f"HTTP 400: {reason}", 400, hopeless=True)
        return delivery_of(answer, now)
