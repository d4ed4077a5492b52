"""The HTTP layer as a part of the app."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from gpuwarden_server.access.keys import KeyRing
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_server.web.answers import Answers
from gpuwarden_server.web.idempotency import IdempotencyBook
from gpuwarden_server.web.methods import install_method_handler
from gpuwarden_server.web.openapi import complete_document
from gpuwarden_server.web.repeats import Repeats

EXPIRY_INTERVAL_S = 600.0
_log = structlog.get_logger(__name__)


class Web:
    """Idempotency keys and their expiry, entity tags, compression, the OpenAPI document."""

    def __init__(
        self, ring: KeyRing, state: Database, clock: Clock, registry: CollectorRegistry
    ) -> None:
        """Make the layer.

        Args:
            ring: The keys.
            state: state.db.
            clock: Time.
            registry: Metrics.
        """
        self._ring = ring
        self._book = IdempotencyBook(state, clock, registry)
        self._expiry: asyncio.Task[None] | None = None

    def install(self, app: FastAPI) -> None:
        """Put the layer around the routes of `app`, inside whatever is added after."""
        app.add_middleware(Repeats, book=self._book, ring=self._ring)
        app.add_middleware(Answers)  # around the other: a kept answer is not compressed
        install_method_handler(app)
        complete_document(app)

    async def start(self) -> None:
        """Begin to forget what is a day old."""
        self._expiry = asyncio.create_task(self._expire(), name="idempotency-expiry")

    async def stop(self) -> None:
        """End."""
        if self._expiry is not None:
            self._expiry.cancel()
            with suppress(asyncio.CancelledError):
                await self._expiry

    async def _expire(self) -> None:
        while True:
            try:
                await self._book.expire()
            except WriteFailed as error:
                _log.warning("idempotency_expiry_failed", reason=str(error))
            await asyncio.sleep(EXPIRY_INTERVAL_S)
