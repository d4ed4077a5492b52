"""One HTTP request to an endpoint: to a checked address, no redirects, a bounded answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime

import httpx

from gpuwarden_server.core.answer import Answer
from gpuwarden_server.notifications.addresses import AddressGuard, AddressRefused, Network
from gpuwarden_server.notifications.domain import Delivery

LONGEST_ANSWER = 65_536
LONGEST_RETRY_AFTER_S = 86_400.0


class Poster:
    """Connections to one endpoint; used by one thread."""

    def __init__(self, guard: AddressGuard, timeout_s: float) -> None:
        self._guard = guard
        # A redirect is a failure: it could lead to an address that was never checked. The proxy of
        # the environment is not used: it would resolve the name again.
        self._client = httpx.Client(timeout=timeout_s, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, url: str, headers: Mapping[str, str], longest: int) -> Answer:
        """Get JSON; never raises for what the network or the other side does.

        Args:
            url: Full URL.
            headers: Beside host and user agent.
            longest: Bytes of the answer's body that are read at most.
        """
        return self._answer("GET", url, b"", headers, longest)

    def post(
        self, url: str, content: bytes, headers: Mapping[str, str], *, read: bool = False
    ) -> Answer:
        """Post JSON; never raises for what the network or the receiver does.

        Args:
            url: Full URL.
            content: Body.
            headers: Beside host, content type and user agent.
            read: Whether the answer's body matters; it could be of any length.
        """
        return self._answer("POST", url, content, headers, LONGEST_ANSWER if read else 0)

    def _answer(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str], longest: int
    ) -> Answer:
        try:
            request = self._request(method, url, content, headers)
            response = self._client.send(request, stream=True)
            try:
                body = _bounded(response, longest) if longest else b""
            finally:
                response.close()
        except (httpx.HTTPError, httpx.InvalidURL, AddressRefused) as failure:
            return Answer(error=f"{type(failure).__name__}: {failure}"[:500])
        return Answer(response.status_code, body, response.headers.get("retry-after", ""))

    def _request(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str]
    ) -> httpx.Request:
        target = httpx.URL(url)
        port = target.port or (443 if target.scheme == "https" else 80)
        address = self._guard.address(target.host, port)
        own = {
            "host": target.netloc.decode(),
            "content-type": "application/json",
            "user-agent": "gpuwarden",
        }
        return self._client.build_request(
            method,
            target.copy_with(host=str(address)),
            content=content,
            headers={**own, **headers},
            # TLS still asks for and verifies the name, though the connection goes to the address.
            extensions={"sni_hostname": target.host},
        )


def poster_maker(networks: Sequence[Network]) -> Callable[[float], Poster]:
    """Makes posters with a time limit in seconds, held to the same addresses.

    Args:
        networks: Private networks that are sent to.
    """
    guard = AddressGuard(networks)
    return lambda timeout_s: Poster(guard, timeout_s)


def _bounded(response: httpx.Response, longest: int) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > longest:
            return body[:longest]
    return body


def delivery_of(answer: Answer, now: float) -> Delivery:
    """What an answer means where only its code speaks: 2xx is taken, all else is not."""
    code = answer.http_status
    if code is None:
        return Delivery(answer.error, lane_down=True)
    if 200 <= code < 300:
        return Delivery(http_status=code)
    return Delivery(
        f"HTTP {code}",
        code,
        retry_after_s(answer.retry_after, now),
        gone=code == 410,
        lane_down=code in (408, 429) or code >= 500,
    )


def retry_after_s(header: str, now: float) -> float | None:
    """Seconds that a Retry-After asks for: a number or an HTTP date; at most a day, None else."""
    text = header.strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
        return min(max(0.0, moment.timestamp() - now), LONGEST_RETRY_AFTER_S)
    except (ValueError, TypeError, OverflowError):
        return None
