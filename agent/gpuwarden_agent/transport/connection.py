"""One kept-alive HTTP connection to the server."""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuwarden_agent.transport.http_exchange import NotHttp, read_answer, request_bytes

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""An acknowledgement with the verdicts of 16 GPUs takes about 5 kB."""


class ConnectionFailed(Exception):
    """No answer came. Whether the batch was applied is not known: send it again.

    Attributes:
        reused: The connection had served before: it may just have been closed for idling.
    """

    def __init__(self, detail: str, *, reused: bool = False) -> None:
        super().__init__(detail)
        self.reused = reused


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    Attributes:
        status_code: HTTP status.
        retry_after: Retry-After header, "" where there is none.
        body: At most 4 MiB of it.
        date: Date header, "" where there is none.
    """

    status_code: int
    retry_after: str
    body: bytes
    date: str = ""


class ServerConnection:
    """Posts to one server; reconnects when told to. One thread posts, any thread may `abort`."""

    def __init__(self, url: str, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        self.url = url
        self._path = parts.path.rstrip("/")
        self._used = False
        self._timeout_s = timeout_s
        self._sock: socket.socket | None = None
        self._host = parts.hostname or ""
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        usual = 80 if self._tls is None else 443
        self._port = parts.port or usual
        # RFC 9110 7.2; names beyond ASCII as DNS has them
        name = f"[{self._host}]" if ":" in self._host else _ascii(self._host)
        self._named = name if self._port == usual else f"{name}:{self._port}"

    @property
    def is_open(self) -> bool:
        """There is a connection, as far as we know."""
        return self._sock is not None

    def open(self) -> bool:
        """Make sure there is a connection that the server has not closed.

        Returns:
            True where a new one had to be made.

        Raises:
            ConnectionFailed: The server cannot be reached.
        """
        if self._sock is not None and not _closed_by_peer(self._sock):
            return False
        self.close()
        try:
            self._sock = self._connect()
        except (OSError, ValueError) as error:
            raise ConnectionFailed(f"cannot reach {self.url}: {error}") from error
        return True

    def _connect(self) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), self._timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return plain
            return self._tls.wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Post and read the answer.

        Raises:
            ConnectionFailed: No complete answer came in time; the connection is closed.
        """
        return self._ask("POST", path, body, headers)

    def get(self, path: str, headers: dict[str, str]) -> Answer:
        """Ask and read the answer.

        Raises:
            ConnectionFailed: No complete answer came in time; the connection is closed.
        """
        return self._ask("GET", path, None, headers)

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        reused, self._used = self._used, True
        named = {"Host": self._named, "Accept-Encoding": "identity", **headers}
        try:
            request = request_bytes(method, self._path + path, named, body)
            if self._sock is None:
                self._sock = self._connect()
            self._sock.sendall(request)
            answer = read_answer(self._sock.recv, _MAX_ANSWER_BYTES)
        except (OSError, NotHttp, ValueError) as error:
            self.close()
            raise ConnectionFailed(
                f"no answer from {self.url}: {error!r}", reused=reused
            ) from error
        if not answer.reusable:
            self.close()  # longer than anything of ours, too: it is not read on
        header = answer.headers.get
        return Answer(
            answer.status_code, header("retry-after", ""), answer.body, header("date", "")
        )

    def abort(self) -> None:
        """Break off a post that another thread waits in."""
        sock = self._sock
        if sock is not None:
            with suppress(OSError):  # closed already
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; the next `open` makes a new connection."""
        self._used = False
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()


def _ascii(name: str) -> str:
    try:
        return name.encode("ascii").decode("ascii")
    except UnicodeEncodeError:
        return name.encode("idna").decode("ascii")


def _closed_by_peer(sock: socket.socket) -> bool:
    """Between answers nothing is to be read: readable means end of file, or an unasked word."""
    ready = select.poll()
    try:
        ready.register(sock, select.POLLIN)
        return bool(ready.poll(0))
    except (OSError, ValueError):
        return True
