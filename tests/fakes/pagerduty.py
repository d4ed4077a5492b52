"""PagerDuty's Events API v2 as its documentation has it: refuses what the real one would.

https://developer.pagerduty.com/docs/send-alert-event: required fields, lengths, severities, 202.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.fakes.answering import Posted, Reply

_SEVERITIES = {"critical", "error", "warning", "info"}
_PAYLOAD = {"summary", "source", "severity", "timestamp", "component", "group", "class"}
_EVENT = {"routing_key", "event_action", "dedup_key", "payload", "client", "client_url", "links"}


@dataclass
class PagerDuty:
    """One service.

    Attributes:
        routing_key: The only one that is known.
        answers: Answers to give before it works, in order.
        events: Events that were taken.
        pages: How often a person was paged, by key: a trigger while it is open pages nobody.
        open: Keys that are open, with their state.
    """

    routing_key: str = "k" * 32
    answers: list[Reply] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    pages: dict[str, int] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)

    def answer(self, posted: Posted) -> Reply:
        """Take an event, or refuse it."""
        if self.answers:
            return self.answers.pop(0)
        wrong = self._wrong(posted)
        if wrong:
            body = {
                "status": "invalid event",
                "message": "Event object is invalid",
                "errors": wrong,
            }
            return Reply(400, json.dumps(body).encode())
        event = json.loads(posted.body)
        self.events.append(event)
        self._apply(event)
        body = {"status": "success", "message": "Event processed", "dedup_key": event["dedup_key"]}
        return Reply(202, json.dumps(body).encode())

    def actions(self) -> list[str]:
        """What was asked for, in order."""
        return [str(event["event_action"]) for event in self.events]

    def _apply(self, event: dict[str, Any]) -> None:
        key = event["dedup_key"]
        match event["event_action"]:
            case "trigger" if key not in self.open:
                self.pages[key] = self.pages.get(key, 0) + 1
                self.open[key] = "triggered"
            case "acknowledge" if key in self.open:
                self.open[key] = "acknowledged"
            case "resolve":
                self.open.pop(key, None)

    def _wrong(self, posted: Posted) -> list[str]:
        event = json.loads(posted.body)
        wrong = []
        if posted.path != "/v2/enqueue":
            wrong.append(f"no such path {posted.path}")
        if posted.headers["content-type"].partition(";")[0] != "application/json":
            wrong.append("Content-Type must be application/json")
        if event.get("routing_key") != self.routing_key:
            wrong.append("routing_key is unknown")
        if len(posted.body) > 512 * 1024:
            wrong.append("larger than 512 KB")
        if not set(event) <= _EVENT:
            wrong.append(f"unknown fields {set(event) - _EVENT}")
        if event.get("event_action") not in {"trigger", "acknowledge", "resolve"}:
            wrong.append("event_action is invalid")
        key = event.get("dedup_key")
        if not isinstance(key, str) or not 0 < len(key) <= 255:
            wrong.append("dedup_key must be 1 to 255 characters")
        if event.get("event_action") == "trigger":
            wrong += _wrong_payload(event.get("payload") or {})
        return wrong


def _wrong_payload(payload: dict[str, Any]) -> list[str]:
    wrong = [
        f"payload.{name} is missing"
        for name in ("summary", "source", "severity")
        if not payload.get(name)
    ]
    if len(payload.get("summary", "")) > 1024:
        wrong.append("payload.summary is longer than 1024")
    if payload.get("severity") not in _SEVERITIES:
        wrong.append("payload.severity is invalid")
    if "timestamp" in payload:
        datetime.fromisoformat(payload["timestamp"])
    if not set(payload) <= _PAYLOAD | {"custom_details"}:
        wrong.append("payload has unknown fields")
    return wrong
