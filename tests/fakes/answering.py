"""An HTTP server on a free port of this machine that answers as a function says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.fakes.loopback import LoopbackHandler, serving_on_loopback


@dataclass(frozen=True)
class Posted:
    """One request.

    Attributes:
        path: As it came.
        headers: Names in lower case.
        body: As it came.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes:
        code: HTTP status.
        body: Bytes.
        headers: Beside the length.
    """

    code: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Answers = Callable[[Posted], Reply]


@contextmanager
def answering(answer: Answers, port: int = 0) -> Iterator[str]:
    """The server's URL while it runs.

    Args:
        answer: Called in a thread of its own for each request.
        port: 0 for a free one.
    """

    class Handler(LoopbackHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            self.do_POST()

        def do_POST(self) -> None:  # the name that http.server calls
            body = self.rfile.read(int(self.headers["content-length"] or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = answer(Posted(self.path, headers, body))
            self.send_response(reply.code)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

    with serving_on_loopback(Handler, port) as server:
        yield server.url
