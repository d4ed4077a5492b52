"""A receiver of actuations over HTTP, as docs/actuators.md words it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from standardwebhooks import Webhook, WebhookVerificationError

from tests.fakes.answering import Posted, Reply


@dataclass
class HookReceiver:
    """Keeps nodes out, and what it was asked.

    Attributes:
        secret: Requests that are not signed with it are a 401.
        held: Our reasons by node.
        asked: Acts in order; "get" for what was read by GET.
        answers: Answers to give before it works, in order.
        jobs: What it says runs on every node; None: it does not say.
        refuses: Whether it answers such requests 503.
        remedied: Requests of a reset, reboot or replacement, in order.
    """

    secret: str
    held: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: list[Reply] = field(default_factory=list)
    jobs: list[str] | None = field(default_factory=list)
    refuses: bool = False
    remedied: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, posted: Posted) -> Reply:
        """Carry a request out."""
        try:
            Webhook(self.secret).verify(posted.body, dict(posted.headers), json_parse=False)
        except WebhookVerificationError:
            return Reply(401, b"not signed")
        if self.answers:
            return self.answers.pop(0)
        if not posted.body:
            self.asked.append("get")
            return self._read(parse_qs(urlsplit(posted.path).query).get("node", []))
        request = json.loads(posted.body)
        self.asked.append(request["act"])
        match request["act"]:
            case "read":
                return self._read(request["nodes"])
            case "exclude":
                self.held[request["node"]] = request["reason"]
            case "release":
                self.held.pop(request["node"], None)
            case "reset" | "reboot" | "replace":
                if self.refuses:
                    return Reply(503, b"no spare machine")
                self.remedied.append(request)
        return Reply(204)

    def _read(self, nodes: list[str]) -> Reply:
        found = {
            node: {
                "hold": "ours" if node in self.held else "free",
                "reason": self.held.get(node, ""),
                "jobs": self.jobs,
            }
            for node in {*nodes, *self.held}
        }
        return Reply(200, json.dumps(found).encode())
