"""Policies by version as a part of the app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from fastapi import APIRouter

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.decisions.policy import LoadedPolicy
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.policies.endpoints import policies_router, replay_router
from gpuwarden_server.policies.history import DecisionHistory
from gpuwarden_server.policies.repository import PolicyText, write_text
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.metrics import EntityKind


class Policies:
    """Keeps the text of the policy in force, and answers for those before it."""

    def __init__(
        self,
        state: Database,
        loaded: LoadedPolicy,
        placements: Placements,
        directory: FleetDirectory,
        clock: Clock,
    ) -> None:
        """Make the part.

        Args:
            state: state.db.
            loaded: The policy in force.
            placements: Labels of nodes.
            directory: Nodes and GPUs.
            clock: Time.
        """
        self._state = state
        self._loaded = loaded
        self._placements = placements
        self._directory = directory
        self._clock = clock
        self._history = DecisionHistory(state, loaded.document, self._gpus_in)

    async def start(self) -> None:
        """Keep the text: what it decides can be judged again once another is in force."""
        now, loaded = self._clock.now(), self._loaded
        mode = loaded.mode.value if loaded.mode is not None else ""
        kept = PolicyText(loaded.document.version, loaded.text, mode, now, now)
        write = self._state.writer.submit(lambda connection: write_text(connection, kept))
        await asyncio.wrap_future(write)

    async def stop(self) -> None:
        """Nothing runs."""

    def routers(self) -> Iterable[APIRouter]:
        """Routes of policies, and of a decision's replay."""
        yield policies_router(self._state, self._history, self._loaded, self._labels, self._clock)
        yield replay_router(self._history, self._loaded)

    def _labels(self) -> list[tuple[str, dict[str, str]]]:
        known = {node.node_id for node in self._directory.nodes()}
        named = sorted(known | set(self._placements.named()))
        return [(node_id, dict(self._placements.words(node_id))) for node_id in named]

    def _gpus_in(self, entity: EntityRef) -> int:
        if entity.kind is not EntityKind.NODE:
            return 1
        return sum(gpu.present for gpu in self._directory.gpus_of(entity.node_id))
