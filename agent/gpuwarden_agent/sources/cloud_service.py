"""Asks a cloud's metadata service over plain HTTP, each look within one hard deadline."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from gpuwarden_agent.transport.http_exchange import (
    HttpAnswer,
    NotHttp,
    read_answer,
    request_bytes,
)

MOST_BODY_BYTES = 256 * 1024
"""A hundred announced events take about 40 kB."""


class CloudUnanswered(Exception):
    """No usable answer came.

    Attributes:
        reason: Short stable phrase.
        mend: What the operator can do about it.
    """

    def __init__(self, reason: str, mend: str) -> None:
        super().__init__(f"{reason}. {mend}")
        self.reason = reason
        self.mend = mend


class CloudService:
    """One metadata service. Not thread-safe; redirects are not followed, proxies are not used.

    Args:
        url: http address without a path.
        deadline_s: Seconds for all that is asked from `begin` on.
    """

    def __init__(self, url: str, deadline_s: float) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._deadline_s = deadline_s
        self._until = 0.0

    def begin(self) -> None:
        """A look begins: its deadline counts from now."""
        self._until = time.monotonic() + self._deadline_s

    def ask(self, method: str, target: str, headers: Mapping[str, str]) -> HttpAnswer:
        """One request over a connection of its own.

        Raises:
            CloudUnanswered: No whole HTTP answer came in time.
        """
        named = {"Host": f"{self._host}:{self._port}", "Connection": "close", **headers}
        request = request_bytes(method, target, named, b"" if method == "PUT" else None)
        try:
            with socket.create_connection((self._host, self._port), self._left()) as sock:
                sock.settimeout(self._left())
                sock.sendall(request)
                return read_answer(lambda size: self._receive(sock, size), MOST_BODY_BYTES + 1)
        except TimeoutError as error:
            raise CloudUnanswered(
                "cloud_too_slow",
                f"{self.url}{target} gave no whole answer in {self._deadline_s:g} s.",
            ) from error
        except NotHttp as error:
            raise CloudUnanswered("cloud_not_http", f"{self.url}{target}: {error}.") from error
        except OSError as error:
            raise CloudUnanswered(
                "cloud_unreachable",
                f"{self.url}: {error}. Is this node in that cloud, and its metadata service on?",
            ) from error

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def _receive(self, sock: socket.socket, size: int) -> bytes:
        sock.settimeout(self._left())
        return sock.recv(size)
