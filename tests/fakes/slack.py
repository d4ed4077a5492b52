"""The two methods of Slack's Web API that are used, as its documentation has them.

chat.postMessage and chat.update: bearer token, limits of text and blocks, 200 with ok false where
it says no, 429 with Retry-After.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.answering import Posted, Reply


@dataclass
class Message:
    """One message in a channel."""

    ts: str
    content: dict[str, Any]
    edits: int = 0
    replies: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its fallback text."""
        return str(self.content["text"])


@dataclass
class Slack:
    """One workspace with one channel that the bot is in.

    Attributes:
        answers: Answers to give before it works, in order.
        messages: By ts, in order.
    """

    token: str = "xoxb-1-2-3"
    channel: str = "C0123456789"
    answers: list[Reply] = field(default_factory=list)
    messages: dict[str, Message] = field(default_factory=dict)

    def answer(self, posted: Posted) -> Reply:
        """Carry a method out, or refuse it as Slack does: with 200."""
        if self.answers:
            return self.answers.pop(0)
        if posted.headers.get("authorization") != f"Bearer {self.token}":
            return _no("invalid_auth")
        if posted.headers["content-type"] != "application/json; charset=utf-8":
            return _no("invalid_arguments")
        asked = json.loads(posted.body)
        wrong = _wrong(asked)
        if wrong:
            return _no(wrong)
        if asked.get("channel") != self.channel:
            return _no("channel_not_found")
        match posted.path:
            case "/api/chat.postMessage":
                return self._post(asked)
            case "/api/chat.update":
                return self._update(asked)
        return _no("unknown_method")

    def _post(self, asked: dict[str, Any]) -> Reply:
        parent = asked.get("thread_ts")
        ts = f"1800000000.{len(self.messages) + 1:06d}"
        if parent is not None:
            if parent not in self.messages:
                return _no("thread_not_found")
            self.messages[parent].replies.append(asked["text"])
            ts = f"{parent}{len(self.messages[parent].replies)}"
        else:
            self.messages[ts] = Message(ts, asked)
        return _yes(channel=self.channel, ts=ts)

    def _update(self, asked: dict[str, Any]) -> Reply:
        message = self.messages.get(asked.get("ts", ""))
        if message is None:
            return _no("message_not_found")
        message.content = asked
        message.edits += 1
        return _yes(channel=self.channel, ts=message.ts)


def _wrong(asked: dict[str, Any]) -> str:
    text, blocks = asked.get("text", ""), asked.get("blocks", [])
    if not text and not blocks:
        return "no_text"
    if len(text) > 40_000:
        return "msg_too_long"
    if len(blocks) > 50:
        return "invalid_blocks"
    for block in blocks:
        if block["type"] == "header" and not 0 < len(block["text"]["text"]) <= 150:
            return "invalid_blocks"
        if block["type"] == "header" and block["text"]["type"] != "plain_text":
            return "invalid_blocks"
        if block["type"] == "section" and not 0 < len(block["text"]["text"]) <= 3000:
            return "invalid_blocks"
        if block["type"] == "context" and not 0 < len(block["elements"]) <= 10:
            return "invalid_blocks"
    return ""


def _no(error: str) -> Reply:
    return Reply(200, json.dumps({"ok": False, "error": error}).encode())


def _yes(**fields: str) -> Reply:
    return Reply(200, json.dumps({"ok": True, **fields}).encode())
