"""Real HTTP that loses answers after the server has given them, as a broken connection does."""

from __future__ import annotations

import httpx


class Lossy:
    """What both transports share.

    Attributes:
        lose: How many answers are still to be lost.
        sent: Idempotency key of each request, "" for none.
    """

    def __init__(self, lose: int) -> None:
        self.lose = lose
        self.sent: list[str] = []

    def note(self, request: httpx.Request) -> None:
        self.sent.append(request.headers.get("idempotency-key", ""))

    def drop(self) -> bool:
        self.lose -= 1
        return self.lose >= 0


class LossyTransport(httpx.BaseTransport):
    """For the blocking client."""

    def __init__(self, lossy: Lossy) -> None:
        self._lossy = lossy
        self._real = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._lossy.note(request)
        response = self._real.handle_request(request)
        if self._lossy.drop():
            response.read()
            response.close()
            raise httpx.ReadError("the answer is lost")
        return response

    def close(self) -> None:
        self._real.close()


class LossyAsyncTransport(httpx.AsyncBaseTransport):
    """For the client to await."""

    def __init__(self, lossy: Lossy) -> None:
        self._lossy = lossy
        self._real = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._lossy.note(request)
        response = await self._real.handle_async_request(request)
        if self._lossy.drop():
            await response.aread()
            await response.aclose()
            raise httpx.ReadError("the answer is lost")
        return response

    async def aclose(self) -> None:
        await self._real.aclose()
