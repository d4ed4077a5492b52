"""Makes what learns and what scores; the app starts it before the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from gpuwarden_server.config import Settings
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.learning.drift.book import DriftBook
from gpuwarden_server.learning.keeper import Keeper
from gpuwarden_server.learning.labels.desk import LabelDesk
from gpuwarden_server.learning.labels.endpoints import labels_router
from gpuwarden_server.learning.registry.desk import ModelDesk
from gpuwarden_server.learning.registry.endpoints import models_router
from gpuwarden_server.learning.registry.library import Library
from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.samples.box import SampleBox
from gpuwarden_server.learning.samples.endpoints import samples_router
from gpuwarden_server.learning.scorer import Scorer
from gpuwarden_server.learning.shadow.book import ShadowBook
from gpuwarden_server.learning.shadow.desk import ShadowDesk
from gpuwarden_server.learning.shadow.endpoints import shadow_router
from gpuwarden_server.learning.shadow.limits import TriedLimit
from gpuwarden_server.learning.shadow.speaking import Surroundings
from gpuwarden_server.learning.watching import Watcher, WatchMeters
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.policy.evaluate import decision_target
from gpuwarden_verdict.verdicts import Standing

SWEEPS_A_TURN = 12
"""Sweeps between two looks at what they noted: a minute at the default interval."""


class Troubled(Protocol):
    """Knows who has an incident; the judge's board does."""

    def entities_with_incidents(self) -> frozenset[tuple[str, str]]:
        """Kind and key of whatever has one."""
        ...

    def nodes_with_incidents(self) -> frozenset[str]:
        """Nodes that have one, or a part of which has."""
        ...

    def standing(self, ref: EntityRef) -> Standing:
        """Where a node or GPU stands."""
        ...


@dataclass(frozen=True, slots=True)
class _Desks:
    """What the routes answer from."""

    models: ModelDesk
    drift: DriftBook
    labels: LabelDesk
    shadow: ShadowDesk


class Learning:
    """The learnt score as a part of the app.

    Attributes:
        scorer: Asked in every sweep.
    """

    def __init__(
        self,
        settings: Settings,
        state: Database,
        placements: Placements,
        clock: Clock,
        registry: CollectorRegistry,
    ) -> None:
        """Take the models that the folder names.

        Args:
            settings: The operator's.
            state: state.db.
            placements: Rules, and where nodes are.
            clock: Time.
            registry: Metrics.
        """
        library = Library(settings.model_folder, state)
        self._state = state
        self._shelf = ModelShelf(library, state, registry)
        book = ShadowBook(state, clock)
        days, most = settings.feature_rows_days, settings.feature_rows_most
        samples = SampleBox(state, clock, registry, days, most)
        meters = WatchMeters(registry)
        drift = DriftBook(registry)
        limit = TriedLimit(lambda: placements.policy, placements.pool, lambda: placements.version)
        self._watcher = Watcher(
            self._shelf, book, samples, drift, placements.pool, limit, clock, meters
        )
        self.scorer = Scorer(self._shelf, self._watcher)
        each_s = SWEEPS_A_TURN * settings.sweep_interval_s
        self._keeper = Keeper(
            self._shelf, book, samples, self.scorer, registry, meters, min(each_s, 60.0)
        )
        self._desks = _Desks(
            ModelDesk(self._shelf, library, state, clock, book.forget),
            drift,
            LabelDesk(state, clock, registry),
            ShadowDesk(self._shelf, library, book, placements.policy, state, clock),
        )

    def follow_incidents(self, troubled: Troubled) -> None:
        """Ask `troubled` who is healthy."""
        self._watcher.follow_incidents(
            troubled.entities_with_incidents,
            troubled.nodes_with_incidents,
            lambda ref: _around(troubled.standing(decision_target(ref))),
        )

    def follow_verdicts(self, told: Callable[[str], None]) -> None:
        """Call `told` with the id of each incident that a person judged."""
        self._desks.labels.follow(told)

    async def start(self) -> None:
        """Take up what people chose before this start, and what was noted."""
        await asyncio.to_thread(self._shelf.load)
        await asyncio.to_thread(self._keeper.start)

    async def stop(self) -> None:
        """Store what was noted."""
        await asyncio.to_thread(self._keeper.stop)

    def routers(self) -> Iterable[APIRouter]:
        """One line a feature."""
        yield models_router(self._desks.models, self._desks.drift)
        yield labels_router(self._desks.labels)
        yield shadow_router(self._desks.shadow)
        yield samples_router(self._state)


def _around(standing: Standing) -> Surroundings:
    return Surroundings(standing.state, standing.incidents)
