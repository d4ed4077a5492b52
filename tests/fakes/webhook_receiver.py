"""A receiver of webhooks over real HTTP that can be told to fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from standardwebhooks import Webhook

from tests.fakes.loopback import LoopbackHandler, serving_on_loopback


@dataclass
class Receiver:
    """What was received.

    Attributes:
        url: Where to send.
        secret: Secret that signatures are checked with.
        answers: HTTP statuses to answer with, in order; 204 once they are used up.
        tried: Message ids of every request, in order.
        bodies: Verified bodies of the requests that were accepted, by message id.
    """

    secret: str
    url: str = ""
    answers: list[int] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    bodies: dict[str, Any] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Answer one request; a signature that is not ours is a 401."""
        message_id = headers["webhook-id"]
        self.tried.append(message_id)
        status = self.answers.pop(0) if self.answers else 204
        if 200 <= status < 300:
            self.bodies[message_id] = Webhook(self.secret).verify(body, headers)
            self.accepted.append(message_id)
        return status

    def types(self) -> list[str]:
        """Types of what was accepted, in order."""
        return [self.bodies[message_id]["type"] for message_id in self.accepted]


@contextmanager
def receiving_webhooks(secret: str) -> Iterator[Receiver]:
    """A receiver on a free port of this machine."""
    receiver = Receiver(secret)

    class Handler(LoopbackHandler):
        def do_POST(self) -> None:  # the name that http.server calls
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.take(headers, body)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving_on_loopback(Handler) as server:
        receiver.url = f"{server.url}/hook"
        yield receiver
