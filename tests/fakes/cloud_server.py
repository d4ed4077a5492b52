"""Metadata services of AWS and Azure over real HTTP, answering as they are told to.

The answers are of our own making, in the forms that the two clouds document; no live cloud was
asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fakes.loopback import LoopbackHandler, serving_on_loopback

SCHEDULED = "/latest/meta-data/events/maintenance/scheduled"
SPOT = "/latest/meta-data/spot/instance-action"
REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
AZURE = "/metadata/scheduledevents?api-version=2020-07-01"
AZURE_NAME = "/metadata/instance/compute/name?api-version=2020-06-01&format=text"


@dataclass
class FakeCloud:
    """What the service answers and what it saw.

    Attributes:
        answers: Bodies by path and query; a path that is not here is answered 404.
        codes: Other statuses than 200, by path.
        token: The one token that is good; a PUT gives it.
        gives_token: Whether there is a version 2 at all.
        silent: Accept requests and say nothing, until `stop`.
        asked: Method and path of each request.
        url: Address.
    """

    answers: dict[str, bytes] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    token: str = "AQAEAL5FxKk="
    gives_token: bool = True
    silent: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""
    stop: threading.Event = field(default_factory=threading.Event)

    def say(self, path: str, body: Any) -> None:
        """Answer a path with JSON."""
        self.answers[path] = json.dumps(body).encode()


class _Handler(LoopbackHandler):
    cloud: FakeCloud

    def do_PUT(self) -> None:  # the name that http.server calls
        """Give a token of version 2."""
        lasts = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        is_token = self.path == "/latest/api/token" and 1 <= int(lasts or 0) <= 21_600
        code = 200 if self.cloud.gives_token and is_token else 405
        self._answer(code, self.cloud.token.encode())

    def do_GET(self) -> None:  # the name that http.server calls
        """Answer as told."""
        cloud = self.cloud
        if cloud.silent:
            cloud.stop.wait(60)
            return
        if self.path.startswith("/latest/"):
            allowed = self.headers.get("X-aws-ec2-metadata-token") == cloud.token
            refusal = 401
        else:
            allowed = self.headers.get("Metadata") == "true"
            refusal = 400
        if not allowed:
            self._answer(refusal, b"")
        elif self.path not in cloud.answers:
            self._answer(cloud.codes.get(self.path, 404), b"")
        else:
            self._answer(cloud.codes.get(self.path, 200), cloud.answers[self.path])

    def _answer(self, code: int, body: bytes) -> None:
        self.cloud.asked.append(f"{self.command} {self.path}")
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(cloud: FakeCloud) -> Iterator[FakeCloud]:
    """The service on a free port, for the length of the block."""
    handler: type[BaseHTTPRequestHandler] = type("Handler", (_Handler,), {"cloud": cloud})
    with serving_on_loopback(handler, let_go=cloud.stop.set) as server:  # type: ignore[arg-type]  # made of one
        cloud.url = server.url
        yield cloud


def scheduled(event_id: str, not_before: str, **fields: str) -> dict[str, str]:
    """One event of AWS's maintenance."""
    usual = {
        "NotBefore": not_before,
        "Code": "system-reboot",
        "Description": "scheduled reboot",
        "EventId": event_id,
        "NotAfter": "21 Jan 2030 09:17:23 GMT",
        "State": "active",
    }
    return usual | fields


def azure_event(event_id: str, kind: str, *resources: str, **fields: Any) -> dict[str, Any]:
    """One of Azure's Scheduled Events."""
    usual = {
        "EventId": event_id,
        "EventType": kind,
        "ResourceType": "VirtualMachine",
        "Resources": list(resources),
        "EventStatus": "Scheduled",
        "NotBefore": "Mon, 21 Jan 2030 09:00:43 GMT",
        "Description": "Host server is undergoing maintenance.",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }
    return usual | fields
