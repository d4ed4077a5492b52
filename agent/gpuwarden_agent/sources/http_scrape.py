"""Fetches the text of one metrics endpoint over a kept-alive connection, within a hard deadline."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BODY_CAP_BYTES = 16 * 1024 * 1024
"""A dcgm-exporter with 8 GPUs and every field gives 0.5 MB, a big node's node_exporter 3 MB."""

_TYPES = ("text/plain", "application/openmetrics-text")


class ScrapeFailed(Exception):
    """No text came.

    Attributes:
        reason: Short stable phrase.
        mend: What the operator can do about it.
    """

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}. {mend}")
        self.reason = reason
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to ask.

    Attributes:
        url: http or https address of the text, path included.
        deadline_s: Seconds for the whole exchange, connecting included.
        tls: Gives the certificates of now, for https.
        token: Gives the bearer token of now, "" for none.
        body_cap: Longer answers are refused, bytes.
    """

    url: str
    deadline_s: float
    tls: Callable[[], ssl.SSLContext] | None = None
    token: Callable[[], str] = str
    body_cap: int = BODY_CAP_BYTES


class _Stream(io.RawIOBase):
    """Reads from a socket so that no read outlasts the deadline of the whole exchange.

    A socket's own timeout starts anew with each byte: a peer that drips one byte a second would
    hold the collector for ever.
    """

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        super().__init__()
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)  # holds the socket open until it is closed
        self._left = left

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """As of any raw stream; raises TimeoutError past the deadline."""
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Let the socket go."""
        self._raw.close()
        super().close()


class _Socket:
    """What http.client asks of a socket, with the deadline on both ways."""

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock = sock
        self._left = left

    def sendall(self, payload: bytes) -> None:
        """Send all of it."""
        self._sock.settimeout(self._left())
        self._sock.sendall(payload)

    def makefile(self, mode: str) -> io.BufferedReader:
        """For reading; http.client asks for no other."""
        return io.BufferedReader(_Stream(self._sock, self._left))

    def close(self) -> None:
        """Close, once the answer being read is closed too."""
        self._sock.close()


class Scraper:
    """Asks one endpoint. Not thread-safe; redirects are not followed, nor are proxies used."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        parts = urlsplit(endpoint.url)
        self._host = parts.hostname or ""
        self._secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._target = (parts.path or "/metrics") + (f"?{parts.query}" if parts.query else "")
        self._http: http.client.HTTPConnection | None = None
        self._until = 0.0

    def fetch(self) -> bytes:
        """The text as it came.

        Raises:
            ScrapeFailed: It did not come whole, in time, as text and with status 200.
        """
        self._until = time.monotonic() + self._endpoint.deadline_s
        reused = self._http is not None
        try:
            try:
                response = self._ask()
            except (ConnectionError, http.client.BadStatusLine):
                if not reused:
                    raise
                self.close()  # closed by the peer since the last time: once more, afresh
                response = self._ask()
            with response:
                return self._body(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._failure(error) from error
        except ScrapeFailed:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection up; the next `fetch` makes a new one."""
        if self._http is not None:
            self._http.close()
            self._http = None

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _ask(self) -> http.client.HTTPResponse:
        if self._http is None:
            self._http = self._connect()
        headers = {"Accept": "text/plain;version=0.0.4", "User-Agent": "gpuwarden-agent"}
        if token := self._endpoint.token():
            headers["Authorization"] = f"Bearer {token}"
        self._http.request("GET", self._target, headers=headers)
        return self._http.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        sock = socket.create_connection((self._host, self._port), self._left())
        try:
            sock.settimeout(self._left())
            if self._secure and self._endpoint.tls is not None:
                sock = self._endpoint.tls().wrap_socket(sock, server_hostname=self._host)
        except BaseException:
            sock.close()
            raise
        made = http.client.HTTPConnection(self._host, self._port)
        made.sock = _Socket(sock, self._left)  # all that a request and its response use
        return made

    def _body(self, response: http.client.HTTPResponse) -> bytes:
        if response.status != http.client.OK:
            raise _refused(response, self._endpoint.url)
        content_type = response.getheader("Content-Type") or ""
        if content_type and not content_type.lower().startswith(_TYPES):
            raise ScrapeFailed(
                "wrong_content_type",
                f"{self._endpoint.url} answers {content_type[:80]}: give the address of metrics "
                "in Prometheus text format.",
            )
        if encoding := response.getheader("Content-Encoding"):
            raise ScrapeFailed(
                "unasked_encoding", f"{self._endpoint.url} answers in {encoding[:40]} unasked."
            )
        cap = self._endpoint.body_cap
        body = b"" if (response.length or 0) > cap else response.read(cap + 1)
        if (response.length or 0) > cap or len(body) > cap:
            raise ScrapeFailed(
                "answer_too_big",
                f"{self._endpoint.url} gives more than {cap} bytes: "
                "switch off the exporter's collectors that are not needed.",
            )
        if response.length:
            raise ScrapeFailed("answer_cut_short", f"{self._endpoint.url} ended in mid-answer.")
        if not response.isclosed() or response.will_close:
            self.close()
        return body

    def _failure(self, error: Exception) -> ScrapeFailed:
        url = self._endpoint.url
        match error:
            case TimeoutError():
                return ScrapeFailed(
                    "exporter_too_slow",
                    f"{url} gave no whole answer in {self._endpoint.deadline_s:g} s.",
                )
            case ssl.SSLError():
                return ScrapeFailed("tls_failed", f"{url}: {error}. Check the CA file.")
            case ConnectionRefusedError():
                return ScrapeFailed(
                    "connection_refused", f"Nothing listens at {url}: start the exporter."
                )
            case socket.gaierror():
                return ScrapeFailed("unknown_host", f"{url}: the host's name is not known.")
            case http.client.IncompleteRead():
                return ScrapeFailed("answer_cut_short", f"{url} ended in mid-answer.")
            case OSError():
                return ScrapeFailed("exporter_unreachable", f"{url}: {error}.")
            case _:
                return ScrapeFailed("not_http", f"{url} does not speak HTTP: {error!r:.100}.")


def _refused(response: http.client.HTTPResponse, url: str) -> ScrapeFailed:
    code = response.status
    if code in (401, 403):
        return ScrapeFailed(
            "unauthorised", f"{url} answers {code}: set the exporter's bearer token file."
        )
    if 300 <= code < 400:
        target = (response.getheader("Location") or "")[:200]
        return ScrapeFailed("redirected", f"{url} points to {target!r}: give that address.")
    if code == http.client.NOT_FOUND:
        return ScrapeFailed("no_such_page", f"{url} answers 404: give the path of the metrics.")
    return ScrapeFailed(f"http_{code}", f"{url} answers {code}: see the exporter's own log.")
