"""One kept-alive HTTP connection to the server."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

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


class _Gathering(http.client.HTTPConnection):
    """Sends a request in one piece: headers and body apart are two records of TLS and two calls."""

    _gathered: list[bytes] | None = None

    def send(self, data: Any) -> None:
        """Keep a part of the request that is being made; else as the base class."""
        if self._gathered is None:
            super().send(data)
        else:
            self._gathered.append(bytes(data))

    def request_whole(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> None:
        """Send a request."""
        parts = self._gathered = []
        try:
            self.request(method, path, body=body, headers=headers)
        finally:
            self._gathered = None
        self.send(b"".join(parts))


class _GatheringTls(_Gathering, http.client.HTTPSConnection):
    """Likewise over TLS."""


class ServerConnection:
    """Posts to one server; reconnects when told to. One thread posts, any thread may `abort`."""

    def __init__(self, url: str, timeout_s: float, tls: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        self.url = url
        self._path = parts.path.rstrip("/")
        self._used = False
        host, port = parts.hostname or "", parts.port
        self._http: _Gathering
        if parts.scheme == "https":
            self._http = _GatheringTls(host, port, timeout=timeout_s, context=tls)
        else:
            self._http = _Gathering(host, port, timeout=timeout_s)

    @property
    def is_open(self) -> bool:
        """There is a connection, as far as we know."""
        return self._http.sock is not None

    def open(self) -> bool:
        """Make sure there is a connection that the server has not closed.

        Returns:
            True where a new one had to be made.

        Raises:
            ConnectionFailed: The server cannot be reached.
        """
        if self._http.sock is not None and not _closed_by_peer(self._http.sock):
            return False
        self.close()
        try:
            self._http.connect()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionFailed(f"cannot reach {self.url}: {error}") from error
        return True

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
        try:
            self._http.request_whole(method, self._path + path, body, headers)
            response = self._http.getresponse()
            content = response.read(_MAX_ANSWER_BYTES)
            if not response.isclosed():
                self.close()  # longer than anything of ours: do not read on
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise ConnectionFailed(
                f"no answer from {self.url}: {error!r}", reused=reused
            ) from error
        header = response.getheader
        return Answer(response.status, header("Retry-After") or "", content, header("Date") or "")

    def abort(self) -> None:
        """Break off a post that another thread waits in."""
        sock = self._http.sock
        if sock is not None:
            with suppress(OSError):  # closed already
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close; the next `open` makes a new connection."""
        self._used = False
        self._http.close()


def _closed_by_peer(sock: socket.socket) -> bool:
    """Between answers nothing is to be read: readable means end of file, or an unasked word."""
    try:
        readable, _, _ = select.select([sock], [], [], 0)
    except (OSError, ValueError):
        return True
    return bool(readable)
