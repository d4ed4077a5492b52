"""One call from the first attempt to its answer, without any network: both clients drive it.

A client asks `request`, sends it, and hands over what came: `answer` reads a response, `fail` says
how long to wait before the next attempt or that there is none. All attempts of a write carry the
same idempotency key, so that one whose answer was lost is not carried out again.
"""

from __future__ import annotations

import random
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from gpuwarden_runtime.call import Call
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import (
    GpuwardenError,
    Refused,
    ServerUnreachable,
    SettingError,
    UnexpectedAnswer,
)
from gpuwarden_runtime.mends import mend_of
from gpuwarden_wire.acknowledgement import Problem
from gpuwarden_wire.codec import decode_problem
from gpuwarden_wire.version import __version__

Answer = TypeVar("Answer")

# The stream's heartbeat comes every 10 s: three missed ones are a broken connection.
STREAM_SILENCE_S = 30.0
CONNECT_S = 5.0
_NOT_OURS = "does GPUWARDEN_URL name a gpuwarden server, with no proxy in between?"


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is tried, and how long between.

    Attributes:
        attempts: Most attempts, the first included; 1 tries once.
        first_wait_s: Longest wait before the second attempt; doubles with each.
        longest_wait_s: Longest wait before any attempt, also where the server names a longer one.
    """

    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 10.0

    def wait_s(self, failures: int, at_least_s: float) -> float:
        """Seconds before the next attempt, with full jitter: clients must not return together.

        Args:
            failures: Attempts that have failed, from 1.
            at_least_s: What the server asks for (Retry-After), 0 for nothing.
        """
        ceiling = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return min(self.longest_wait_s, at_least_s + random.uniform(0.0, ceiling))


ONCE = Retry(attempts=1)
"""For callers with a loop of their own."""


class Exchange(Generic[Answer]):
    """The attempts of one call."""

    def __init__(self, call: Call[Answer], retry: Retry, url: str) -> None:
        """Begin.

        Args:
            call: What to ask.
            retry: How often.
            url: Address of the server.
        """
        self._call = call
        self._retry = retry
        self._url = url
        self._failures = 0
        self._key = secrets.token_hex(16) if call.writes else ""

    def request(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The next attempt."""
        call = self._call
        headers = {"Idempotency-Key": self._key} if self._key else {}
        content = None
        if call.body is not None:
            content = msgspec.json.encode(call.body)
            headers["Content-Type"] = "application/json"
        return http.build_request(
            call.method,
            self._url + call.path,
            params=_query(call.query),
            content=content,
            headers=headers,
        )

    def answer(self, response: httpx.Response) -> Answer:
        """The value in a response.

        Raises:
            Refused: The server said no.
            UnexpectedAnswer: It is not of our API.
        """
        if not response.is_success:
            raise refusal(response)
        try:
            return self._call.read(response.content)
        except msgspec.DecodeError as error:
            where = f"{response.request.method} {response.url.path}"
            raise UnexpectedAnswer(f"{where}: {error}", _NOT_OURS) from error

    def fail(self, error: GpuwardenError) -> float:
        """Note a failed attempt.

        Returns:
            Seconds to wait before the next one.

        Raises:
            GpuwardenError: `error` itself, where there is no next one.
        """
        self._failures += 1
        if not error.retryable or self._failures >= self._retry.attempts:
            raise error
        at_least_s = 0.0
        if isinstance(error, Refused):
            at_least_s = error.retry_after_s
            self._follow(error.problem.leader)
        return self._retry.wait_s(self._failures, at_least_s)

    def _follow(self, leader: str | None) -> None:
        """Ask the leading server next; never over a plainer connection than the user chose."""
        if leader and urlsplit(leader).scheme == urlsplit(self._url).scheme:
            self._url = leader.rstrip("/")


def http_options(settings: RuntimeSettings, timeout_s: float) -> dict[str, Any]:
    """What an httpx client of either kind is made with.

    Raises:
        SettingError: The certificate file cannot be used.
    """
    headers = {"User-Agent": f"gpuwarden/{__version__}", "Accept": "application/json"}
    if settings.key:
        headers["Authorization"] = f"Bearer {settings.key}"
    return {
        "headers": headers,
        "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        "verify": _certificates(settings),
        # A proxy meant for the internet must not stand between a node and its server, least of all
        # on loopback.
        "trust_env": False,
    }


def stream_request(
    http: httpx.Client | httpx.AsyncClient,
    url: str,
    path: str,
    query: Mapping[str, object],
    last_event_id: str | None,
) -> httpx.Request:
    """The request of a stream of server-sent events."""
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if last_event_id:
        headers["Last-Event-ID"] = last_event_id
    return http.build_request(
        "GET",
        url + path,
        params=_query(query),
        headers=headers,
        timeout=httpx.Timeout(10.0, connect=CONNECT_S, read=STREAM_SILENCE_S),
    )


def check_stream(response: httpx.Response) -> None:
    """Refuse what is no event stream; the body of another answer has been read.

    Raises:
        Refused: The server said no.
        UnexpectedAnswer: Not an event stream.
    """
    if response.status_code != httpx.codes.OK:
        raise refusal(response)
    if "text/event-stream" not in response.headers.get("content-type", ""):
        raise UnexpectedAnswer(f"{response.url} is no event stream", _NOT_OURS)


def is_stream(response: httpx.Response) -> bool:
    """Whether the body must be left to be read as it comes."""
    return response.status_code == httpx.codes.OK


def unreachable(url: str, error: httpx.TransportError) -> ServerUnreachable:
    """The error of a connection that gave no answer."""
    what = str(error) or type(error).__name__
    return ServerUnreachable(
        f"no answer from {url}: {what}",
        "is `gpuwarden server` running there? The address is GPUWARDEN_URL or --url",
    )


def refusal(response: httpx.Response) -> Refused | UnexpectedAnswer:
    """The error of an answer that is none of the good ones; its body has been read."""
    problem = decode_problem(response.content)
    if problem is None:
        return UnexpectedAnswer(
            f"{response.url} answered {response.status_code} without problem details",
            _NOT_OURS,
            retryable=response.is_server_error,
        )
    mend = mend_of(problem, response.request.url.path)
    problem = msgspec.structs.replace(problem, mend=mend)
    return Refused(_named(problem, response), _seconds(response.headers.get("retry-after", "")))


def _named(problem: Problem, response: httpx.Response) -> Problem:
    if problem.detail:
        return problem
    detail = f"{response.request.method} {response.url.path}: {problem.title}"
    return msgspec.structs.replace(problem, detail=detail)


def _seconds(retry_after: str) -> float:
    """Retry-After in seconds; its other form, a date, is nothing that our server sends."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0


def _query(params: Mapping[str, object]) -> httpx.QueryParams:
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        if isinstance(value, list):
            pairs.extend((name, str(item)) for item in value)
        elif value is not None:
            pairs.append((name, str(value).lower() if isinstance(value, bool) else str(value)))
    return httpx.QueryParams(tuple(pairs))


def _certificates(settings: RuntimeSettings) -> ssl.SSLContext | bool:
    if settings.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(settings.ca_file))
    except OSError as error:  # ssl.SSLError is an OSError
        raise SettingError(
            f"certificates {settings.ca_file}: {error}", "point GPUWARDEN_CA_FILE at a PEM file"
        ) from error
