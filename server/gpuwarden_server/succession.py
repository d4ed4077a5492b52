"""A server on stand-by: what it answers, and how it takes the lead over.

The parts of the server start when it leads, and load what they know as at any start. Until then it
answers from the database what the database alone says; all else names the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol, assert_never

import structlog

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.front import AsgiApp, Receive, Scope, Send, send_problem
from gpuwarden_server.store.leadership import Leadership, Post

POLL_S = 1.0
_READS = frozenset({"GET", "HEAD"})
# Answered from rows: as true on stand-by as on the leader.
_ASKED = ("POST", "/v1/verdicts")  # a read whose question is too long for a URL
_ROWS = (
    *("/v1/incidents", "/v1/decisions", "/v1/events", "/v1/keys", "/v1/audit", "/v1/policy"),
    "/v1/enrolment-tokens",
)
_STREAM = "/stream"  # fed by a part that runs with the leader only
_log = structlog.get_logger(__name__)


class Part(Protocol):
    """Something that runs while the server leads."""

    async def start(self) -> None:
        """Begin; the parts before it in the list run already."""
        ...

    async def stop(self) -> None:
        """End, within a second or two; the parts after it have ended."""
        ...


class Succession:
    """Starts the parts as soon as this server leads."""

    def __init__(
        self,
        leadership: Leadership,
        parts: Sequence[Part],
        refresh: Callable[[], None],
        give_up: Callable[[], None],
    ) -> None:
        """Make a succession.

        Args:
            leadership: Whether this server leads.
            parts: Started in order, ended in reverse.
            refresh: Reads anew what a stand-by answers from memory; runs in a thread.
            give_up: Ends this server, so that it starts afresh.
        """
        self._leadership = leadership
        self._parts = parts
        self._refresh = refresh
        self._give_up = give_up
        self._running = AsyncExitStack()
        self._waiting: asyncio.Task[None] | None = None
        self._serves = False

    async def start(self) -> None:
        """Lead where nobody does, else wait on stand-by.

        Raises:
            StoreError: Another server works on the same state folder.
        """
        self._leadership.follow_end(self._give_up)
        self._running.push_async_callback(asyncio.to_thread, self._leadership.resign)
        try:
            if await asyncio.to_thread(self._leadership.try_lead):
                await self._lead()
                return
        except BaseException:
            await self._running.aclose()
            raise
        _log.info("stands_by", leader=self._leadership.leader_url)
        self._waiting = asyncio.create_task(self._wait(), name="succession")

    async def stop(self) -> None:
        """End the parts that run, then give the lead up."""
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)
        await self._running.aclose()

    def stand_by(self) -> str | None:
        """Why this server does not do its work since another leads; None where it leads."""
        match self._leadership.post:
            case Post.LEADING | Post.LAPSED:
                return None if self._serves else "this server is taking the lead over"
            case Post.STAND_BY | Post.DEPOSED:
                return self._who_leads()
            case _ as never:
                assert_never(never)

    def lapse(self) -> str | None:
        """Why this server cannot be sure to lead, None where it can."""
        if self._leadership.post is Post.LAPSED:
            return "the lease could not be renewed in time: the database does not answer"
        return None

    def _who_leads(self) -> str:
        leader = self._leadership.leader_url
        return f"on stand-by: {leader or 'another server, which does not tell its URL,'} leads"

    def refusal(self, method: str, path: str) -> ProblemError | None:
        """Why a request cannot be answered here; None where it can."""
        why = self.stand_by() or self.lapse()
        if not path.startswith(("/v1/", "/approve/")) or why is None:
            return None
        is_read = method in _READS or (method, path) == _ASKED
        is_rows = path.startswith(_ROWS) and not path.endswith(_STREAM)
        if is_read and (self._serves or is_rows):
            return None
        if self._serves and self.lapse() is not None:
            mend = "Look at PostgreSQL; /readyz says when the database works again."
            return ProblemError(503, "storage_failed", why, mend)
        return ProblemError(
            503,
            "not_leader",
            why,
            "Ask the leader; where none is named, ask again in a few seconds.",
            leader=self._leadership.leader_url,
        )

    async def _wait(self) -> None:
        try:
            while not await asyncio.to_thread(self._leadership.try_lead):
                await asyncio.to_thread(self._refresh)
                await asyncio.sleep(POLL_S)
            await self._lead()
        except Exception as error:
            _log.error("cannot_take_over", worker="succession", exc_info=error)
            self._give_up()

    async def _lead(self) -> None:
        for part in self._parts:
            await part.start()
            self._running.push_async_callback(part.stop)
        self._serves = True


class StandByGate:
    """ASGI middleware around all others: sends to the leader what this server cannot answer."""

    def __init__(self, app: AsgiApp, succession: Succession) -> None:
        self._app = app
        self._succession = succession

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI call."""
        refusal = (
            self._succession.refusal(scope["method"], scope["path"])
            if scope["type"] == "http"
            else None
        )
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(send, refusal)
