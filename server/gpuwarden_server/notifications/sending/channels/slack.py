"""Slack with a bot token: one message that follows its case, its moves in the thread.

Slack takes no idempotency key: where the process ends between Slack's answer and its record, the
same message may be posted twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery, Message, MessageKind
from gpuwarden_server.notifications.http import Poster, delivery_of
from gpuwarden_server.notifications.planning.cases import CaseView, Member, line_of
from gpuwarden_server.notifications.sending.channels.asking import ApproveUrl, asked
from gpuwarden_server.notifications.sending.channels.contract import Dispatch
from gpuwarden_verdict.entities import Severity

LONGEST_HEADER = 150
LONGEST_SECTION = 3000
LONGEST_TEXT = 4000
LINES_SHOWN = 15
MOVES_A_REPLY = 20

_MARKS = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":large_orange_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":white_circle:",
}
# What passes, or a person can mend over there without the message being another: tried for a day.
_PASSES = frozenset(
    {
        *("ratelimited", "rate_limited", "service_unavailable", "internal_error"),
        *("fatal_error", "request_timeout"),
        *("invalid_auth", "account_inactive", "token_revoked", "token_expired", "not_authed"),
        *("channel_not_found", "not_in_channel", "is_archived", "missing_scope"),
        *("org_login_required", "ekm_access_denied", "access_denied", "restricted_action"),
    }
)


class SlackChannel:
    """One channel of one workspace."""

    def __init__(
        self, endpoint: Endpoint, poster: Poster, console_url: str, approve_url: ApproveUrl
    ) -> None:
        self._url = endpoint.urls[0].rstrip("/")
        self._headers = {
            "authorization": f"Bearer {endpoint.secrets[0]}",
            "content-type": "application/json; charset=utf-8",
        }
        self._channel = endpoint.channel
        self._poster = poster
        self._console_url = console_url
        self._approve_url = approve_url

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`."""
        if dispatch.message.kind is MessageKind.DIGEST:
            return self._digest(dispatch.message, dispatch.now)
        if dispatch.view is None:
            return Delivery("its case is not kept any more", hopeless=True)
        return self._follow(dispatch.view, dispatch.now)

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        text = "A test of gpuwarden: nothing happened."
        return self._call("chat.postMessage", {"text": text}, now)[0]

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return None

    def close(self) -> None:
        """See `Channel`."""
        self._poster.close()

    def _follow(self, view: CaseView, now: float) -> Delivery:
        external = dict(view.case.external)
        if "ts" not in external:
            delivery, answer = self._call("chat.postMessage", self._message(view), now)
            if not delivery.delivered:
                return delivery
            made = {
                "ts": answer["ts"],
                "channel": answer["channel"],
                "moved": view.case.moved,
            }
            return Delivery(http_status=200, external=made)
        at = {"channel": external["channel"], "ts": external["ts"]}
        delivery, _ = self._call("chat.update", self._message(view) | at, now)
        if not delivery.delivered:
            return delivery
        return self._reply(view, external, now)

    def _reply(self, view: CaseView, external: dict[str, Any], now: float) -> Delivery:
        """What moved since, in the thread: readers see it, nobody is paged."""
        moves = view.case.moves_after(int(external["moved"]))
        told = {**external, "moved": view.case.moved}
        if not moves:
            return Delivery(http_status=200, external=told)
        lines = [_escaped(text) for _, text in moves]
        shown = lines[-MOVES_A_REPLY:]
        if len(lines) > len(shown):
            shown = [f"… {len(lines) - len(shown)} more", *shown]
        reply = {
            "channel": external["channel"],
            "thread_ts": external["ts"],
            "text": "\n".join(shown)[:LONGEST_TEXT],
        }
        delivery, _ = self._call("chat.postMessage", reply, now)
        if not delivery.delivered:
            return delivery
        return Delivery(http_status=200, external=told)

    def _digest(self, message: Message, now: float) -> Delivery:
        told = msgspec.json.decode(message.payload)["data"]
        lines = [f"*{_escaped(told['title'])}*", *(_escaped(line) for line in told["lines"])]
        return self._call("chat.postMessage", {"text": "\n".join(lines)[:LONGEST_TEXT]}, now)[0]

    def _message(self, view: CaseView) -> dict[str, Any]:
        mark = ":white_check_mark: Resolved:" if view.closed else _MARKS[view.severity]
        header = f"{mark} {view.title}"
        lines = [f"• {_escaped(line_of(one.body))}" for one in view.members[:LINES_SHOWN]]
        if len(view.members) > LINES_SHOWN:
            lines.append(f"… and {len(view.members) - LINES_SHOWN} more")
        facts = [f"severity {view.severity}", f"action {view.first.get('action')}"]
        decision = view.first.get("decision") or {}
        if decision:
            facts.append(f"decision {decision.get('rung')} {decision.get('phase')}")
        if view.acknowledged:
            facts.append("acknowledged")
        if self._console_url:
            facts.append(f"<{self._console_url}|console>")
        links = [f"<{url}|{_escaped(what)}>" for what, url in asked(view, self._approve_url)]
        asking = [_section(f"Waits for a person: {' · '.join(links)}")] if links else []
        return {
            "text": _escaped(header)[:LONGEST_TEXT],
            "blocks": [
                {
                    "type": "header",
                    "text": {"type": "plain_text", "text": header[:LONGEST_HEADER], "emoji": True},
                },
                _section("\n".join(lines)),
                *asking,
                {"type": "context", "elements": [_mrkdwn(" · ".join(facts))]},
            ],
        }

    def _call(
        self, method: str, arguments: Mapping[str, Any], now: float
    ) -> tuple[Delivery, dict[str, Any]]:
        body = msgspec.json.encode({"channel": self._channel, **arguments})
        answer = self._poster.post(f"{self._url}/{method}", body, self._headers, read=True)
        delivery = delivery_of(answer, now)
        if not delivery.delivered:
            return delivery, {}
        try:
            told = msgspec.json.decode(answer.body, type=dict[str, Any])
        except msgspec.DecodeError:
            return Delivery("the answer is no JSON", answer.http_status, lane_down=True), {}
        if told.get("ok") is True:
            return delivery, told
        return _refused(str(told.get("error", "ok is not true"))), {}


def _refused(error: str) -> Delivery:
    """Slack answers 200 also where it says no."""
    if error in _PASSES:
        return Delivery(f"slack: {error}", 200, lane_down=True)
    return Delivery(f"slack: {error}", 200, hopeless=True)


def _escaped(text: str) -> str:
    """Slack's three control characters as entities."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> dict[str, Any]:
    return {"type": "mrkdwn", "text": text[:LONGEST_SECTION]}
