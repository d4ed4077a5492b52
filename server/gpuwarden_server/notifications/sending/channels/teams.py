"""Microsoft Teams: an Adaptive Card in a channel, through a workflow's webhook.

The trigger "When a Teams webhook request is received" of Power Automate takes a message with cards
as attachments and answers 202. The address holds its signature. A card cannot be edited by it: one
more is sent where a case grows or worsens, and when it ends. No idempotency key is taken either:
where the process ends between the answer and its record, the same card may be posted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery, Message, MessageKind
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.cases import CaseView, Member, line_of
from gpuwarden_server.notifications.sending.channels.asking import ApproveUrl, asked
from gpuwarden_server.notifications.sending.channels.contract import Dispatch
from gpuwarden_server.notifications.sending.channels.news import is_news, known_of
from gpuwarden_verdict.entities import Severity

LARGEST_MESSAGE = 28 * 1024
"""Bytes that Teams takes of a message with its cards."""
LINES_SHOWN = 15
LONGEST_LINE = 1000
_CARD = "application/vnd.microsoft.card.adaptive"
_SCHEMA = "http://adaptivecards.io/schemas/adaptive-card.json"
_COLOURS = {
    Severity.CRITICAL: "attention",
    Severity.ERROR: "attention",
    Severity.WARNING: "warning",
    Severity.INFO: "accent",
}
_MARKDOWN = str.maketrans({sign: f"\\{sign}" for sign in "\\*_[]()#`~>|"})

Block = dict[str, Any]


class TeamsChannel:
    """One workflow."""

    def __init__(
        self, endpoint: Endpoint, poster: Poster, console_url: str, approve_url: ApproveUrl
    ) -> None:
        self._url = endpoint.urls[0]
        self._poster = poster
        self._console_url = console_url
        self._approve_url = approve_url

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`."""
        message, view = dispatch.message, dispatch.view
        if message.kind is MessageKind.DIGEST:
            return self._digest(message, dispatch.now)
        if view is None:
            return Delivery("its case is not kept any more", hopeless=True)
        over = message.kind is MessageKind.RESOLVE
        if not over and not is_news(view):
            return Delivery()
        title = f"{'resolved' if over else view.severity.value}: {view.title}"
        colour = "good" if over else _COLOURS[view.severity]
        lines = [line_of(member.body) for member in view.members]
        links = asked(view, self._approve_url)
        delivery = self._send(title, colour, lines, _facts(view), dispatch.now, links)
        if not delivery.delivered:
            return delivery
        return Delivery(http_status=delivery.http_status, external=known_of(view))

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        return self._send("A test of gpuwarden", "accent", ["Nothing happened."], [], now)

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _digest(self, message: Message, now: float) -> Delivery:
        told = msgspec.json.decode(message.payload)["data"]
        return self._send(str(told["title"]), "accent", told["lines"], [], now)

    def _send(
        self,
        title: str,
        colour: str,
        lines: Sequence[str],
        facts: Sequence[Block],
        now: float,
        links: Sequence[tuple[str, str]] = (),
    ) -> Delivery:
        actions = [_link(f"Approve: {what}", url) for what, url in links]
        if self._console_url:
            actions.append(_link("Console", self._console_url))
        content = _body(title, colour, lines, facts, actions)
        answer = self._poster.post(self._url, content, {})
        if answer.http_status in (400, 413):
            return Delivery(f"HTTP {answer.http_status}", answer.http_status, hopeless=True)
        return delivery_of(answer, now)


def _body(
    title: str,
    colour: str,
    lines: Sequence[str],
    facts: Sequence[Block],
    actions: Sequence[Block],
) -> bytes:
    """The message, with as many lines as fit."""
    for shown in range(min(len(lines), LINES_SHOWN), -1, -1):
        blocks = [_text(line) for line in lines[:shown]]
        if len(lines) > shown:
            blocks.append(_text(f"… and {len(lines) - shown} more"))
        if facts:
            blocks.append({"type": "FactSet", "facts": list(facts)})
        content = msgspec.json.encode(_message(title, colour, blocks, actions))
        if len(content) <= LARGEST_MESSAGE:
            break
    return content


def _message(title: str, colour: str, blocks: Sequence[Block], actions: Sequence[Block]) -> Block:
    head = _text(title) | {"size": "medium", "weight": "bolder", "color": colour}
    card: Block = {
        "$schema": _SCHEMA,
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [head, *blocks],
    }
    if actions:
        card["actions"] = list(actions)
    attachment = {"contentType": _CARD, "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _link(title: str, url: str) -> Block:
    return {"type": "Action.OpenUrl", "title": title[:100], "url": url}


def _facts(view: CaseView) -> list[Block]:
    decision = view.first.get("decision") or {}
    told = {
        "Severity": view.severity.value,
        "Action": str(view.first.get("action") or ""),
        "Decision": f"{decision.get('rung')} {decision.get('phase')}" if decision else "",
    }
    return [{"title": name, "value": _plain(value)} for name, value in told.items() if value]


def _text(text: str) -> Block:
    return {"type": "TextBlock", "text": _plain(text), "wrap": True}


def _plain(text: str) -> str:
    """Text whose signs are no markdown."""
    shown = text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
    return shown.translate(_MARKDOWN)
