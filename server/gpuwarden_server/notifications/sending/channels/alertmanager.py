"""The user's Alertmanager, API v2: an alert an incident, posted again before it expires.

Alertmanager resolves by itself what is not posted again until `endsAt`; so what stands is posted
each `repeat_s`, and what has ended once more with its end. Each replica has a lane of its own:
replicas do not share alerts, only what they notified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuwarden_server.core.answer import Answer
from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery
from gpuwarden_server.notifications.facts.outbox import moment_text
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.alerts import alert_labels
from gpuwarden_server.notifications.planning.cases import Member, Standing
from gpuwarden_server.notifications.sending.channels.contract import Dispatch
from gpuwarden_verdict.places import place_words
from gpuwarden_wire.metrics import EntityKind

PATH = "/api/v2/alerts"
ALERTS_A_POST = 500
EXPIRES_AFTER = 4.0
"""Posts that may fail before an alert expires over there."""
WATCHDOG = "GpuwardenWatchdog"
TEST = "GpuwardenTest"

Alert = dict[str, Any]


class AlertmanagerChannel:
    """One replica."""

    def __init__(self, endpoint: Endpoint, url: str, poster: Poster, console_url: str) -> None:
        self._url = url.rstrip("/") + PATH
        self._headers = {}
        if endpoint.secrets:
            self._headers = {"authorization": f"Bearer {endpoint.secrets[0]}"}
        self._expires_s = EXPIRES_AFTER * endpoint.repeat_s
        self._poster = poster
        self._console_url = console_url

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`."""
        if dispatch.member is None:
            return Delivery("its incident is not kept any more", hopeless=True)
        return self._post(self._alerts_of(dispatch.member, dispatch.now), dispatch.now)

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        alert = {
            "labels": {"alertname": TEST, "service": "gpuwarden", "severity": "info"},
            "annotations": {"summary": "A test of gpuwarden: nothing happened."},
            "startsAt": moment_text(now),
            "endsAt": moment_text(now + 60.0),
        }
        return self._post([alert], now)

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        alerts = [alert for member in members for alert in self._alerts_of(member, now)]
        if scoring:
            alerts.append(self._watchdog(now))
        for begin in range(0, len(alerts), ALERTS_A_POST):
            delivery = self._post(alerts[begin : begin + ALERTS_A_POST], now)
            if not delivery.delivered:
                return delivery
        return Delivery() if alerts else None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _post(self, alerts: list[Alert], now: float) -> Delivery:
        answer = self._poster.post(self._url, msgspec.json.encode(alerts), self._headers, read=True)
        return _delivery(answer, now)

    def _alerts_of(self, member: Member, now: float) -> list[Alert]:
        """The alert of an incident, and the ends of those that it was before its labels changed."""
        body = member.body
        over = member.resolved or member.standing is Standing.OVER
        ends_at = float(body.get("resolved_at") or now) if over else now + self._expires_s
        ended = [
            {
                "labels": labels,
                "annotations": {},
                "startsAt": moment_text(float(body["opened_at"])),
                "endsAt": moment_text(now),
            }
            for labels in body.get("former", [])
        ]
        alert = {
            "labels": alert_labels(body),
            "annotations": _annotations(body),
            "startsAt": moment_text(float(body["opened_at"])),
            "endsAt": moment_text(ends_at),
        }
        if self._console_url:
            alert["generatorURL"] = self._console_url
        return [*ended, alert]

    def _watchdog(self, now: float) -> Alert:
        return {
            "labels": {"alertname": WATCHDOG, "service": "gpuwarden", "severity": "none"},
            "annotations": {
                "summary": "gpuwarden scores the fleet; when this alert ends, it does no longer"
            },
            "endsAt": moment_text(now + self._expires_s),
        }


def _subject(body: Mapping[str, Any]) -> str:
    if body["entity_kind"] == EntityKind.PLACE:
        return place_words(str(body["entity"]))
    return f"{body['entity']} on {body['node_id']}"


def _annotations(body: Mapping[str, Any]) -> dict[str, str]:
    decision = body.get("decision") or {}
    told = {
        "summary": f"{_subject(body)}: {body['fault_class']}",
        "description": str(body.get("why", "")),
        "action": str(body.get("action", "")),
        "incident_id": str(body["id"]),
        "decision": f"{decision.get('rung')} {decision.get('phase')}" if decision else "",
    }
    return {name: value for name, value in told.items() if value}


def _delivery(answer: Answer, now: float) -> Delivery:
    delivery = delivery_of(answer, now)
    if answer.http_status != 400:
        return delivery
    reason = answer.body[:300].decode("utf-8", "replace")
    return Delivery(f"HTTP 400: {reason}", 400, hopeless=True)
