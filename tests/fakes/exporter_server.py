"""A metrics endpoint over real HTTP that can be slow, wrong or gone."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fakes.loopback import LoopbackHandler, serving_on_loopback
from tests.fakes.ports import free_port


@dataclass
class FakeExporter:
    """What the endpoint answers and what it saw.

    Attributes:
        text: The answer's body.
        code: The answer's status.
        headers: Headers beside Content-Length; a header replaces ours.
        token: Bearer token that it asks for, "" for none.
        claimed_length: Content-Length to claim, None for the true one.
        drip_s: Seconds between bytes of the body, 0 for all at once.
        silent: Accept requests and say nothing, until `stop`.
        chunked: Send the body in chunks.
        hangs_up: Close the connection after each answer without having said so.
        url: Address.
        requests: Requests so far.
        connections: Connections so far.
    """

    text: str | bytes = ""
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    token: str = ""
    claimed_length: int | None = None
    drip_s: float = 0.0
    silent: bool = False
    chunked: bool = False
    hangs_up: bool = False
    url: str = ""
    requests: int = 0
    connections: int = 0
    stop: threading.Event = field(default_factory=threading.Event)


class _Handler(LoopbackHandler):
    protocol_version = "HTTP/1.1"
    exporter: FakeExporter

    def setup(self) -> None:
        """Count the connection."""
        super().setup()
        self.exporter.connections += 1

    def do_GET(self) -> None:  # the name that http.server calls
        """Answer as told."""
        exporter = self.exporter
        exporter.requests += 1
        if exporter.silent:
            exporter.stop.wait(60)
            self.close_connection = True
            return
        body = exporter.text if isinstance(exporter.text, bytes) else exporter.text.encode()
        asked = self.headers.get("Authorization", "")
        refused = exporter.token and asked != f"Bearer {exporter.token}"
        self.send_response(401 if refused else exporter.code)
        headers = {"Content-Type": "text/plain; version=0.0.4", **exporter.headers}
        if exporter.chunked:
            headers["Transfer-Encoding"] = "chunked"
        else:
            length = exporter.claimed_length
            headers["Content-Length"] = str(len(body) if length is None else length)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        self._send(body)
        self.close_connection = (
            self.close_connection or exporter.hangs_up or exporter.claimed_length is not None
        )

    def _send(self, body: bytes) -> None:
        if self.exporter.chunked:
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        elif self.exporter.drip_s:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if self.exporter.stop.wait(self.exporter.drip_s):
                    return
        else:
            self.wfile.write(body)


@contextmanager
def serving(exporter: FakeExporter, tls: ssl.SSLContext | None = None) -> Iterator[FakeExporter]:
    """The endpoint on a free port, for the length of the block."""
    handler = type("Handler", (_Handler,), {"exporter": exporter})
    with serving_on_loopback(handler, tls=tls, let_go=exporter.stop.set) as server:
        exporter.url = f"{server.url}/metrics"
        yield exporter


def free_url() -> str:
    """An address where nothing listens."""
    return f"http://127.0.0.1:{free_port()}/metrics"
