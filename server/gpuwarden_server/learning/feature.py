"""Makes what learns and what scores; the app starts it before the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.learning.labels.desk import LabelDesk
from gpuwarden_server.learning.labels.endpoints import labels_router
from gpuwarden_server.learning.registry.desk import ModelDesk
from gpuwarden_server.learning.registry.endpoints import models_router
from gpuwarden_server.learning.registry.library import Library
from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.scorer import Scorer
from gpuwarden_server.store.database import Database


class Learning:
    """The learnt score as a part of the app.

    Attributes:
        scorer: Asked in every sweep.
    """

    def __init__(
        self, folder: Path | None, state: Database, clock: Clock, registry: CollectorRegistry
    ) -> None:
        """Take the models that the folder names.

        Args:
            folder: The operator's model folder, None for the shipped models.
            state: state.db.
            clock: Time.
            registry: Metrics.
        """
        library = Library(folder, state)
        self._shelf = ModelShelf(library, state, registry)
        self._models = ModelDesk(self._shelf, library, state, clock)
        self._labels = LabelDesk(state, clock, registry)
        self.scorer = Scorer(self._shelf)

    async def start(self) -> None:
        """Take up what people chose before this start."""
        await asyncio.to_thread(self._shelf.load)

    async def stop(self) -> None:
        """Nothing is left to do."""

    def routers(self) -> Iterable[APIRouter]:
        """One line a feature."""
        yield models_router(self._models)
        yield labels_router(self._labels)
