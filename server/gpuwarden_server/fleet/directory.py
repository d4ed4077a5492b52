"""The fleet as it is now, in memory; state.db has the same."""

from __future__ import annotations

import structlog
from sqlalchemy import Connection

from gpuwarden_server.fleet import repository
from gpuwarden_server.jobs.domain import runs_of
from gpuwarden_server.jobs.repository import save_runs
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.directory import Directory, Draft

_log = structlog.get_logger(__name__)


class FleetDirectory(Directory):
    """Nodes and GPUs by id; `take_over` is called on the event loop only."""

    def load(self, database: Database) -> None:
        """Read everything from state.db."""
        with database.read() as connection:
            nodes = repository.load_nodes(connection)
            gpus = repository.load_gpus(connection)
            departures = repository.load_departures(connection)
        self.fill(nodes, gpus, departures)

    def draft(self, node_id: str, at: float) -> FleetDraft:
        """A draft of one node, made where it is new; `at` is the server's epoch seconds."""
        return FleetDraft(self, node_id, at)


class FleetDraft(Draft):
    """One node's records while a transaction works on them."""

    def save(self, connection: Connection) -> None:
        """Write what changed."""
        if self.node is not self.before:
            repository.save_node(connection, self.node, self.at)
        repository.save_gpus(connection, self.gpus.values(), self.at)
        before, after = self.gpus_here()
        runs = runs_of((gpu.gpu_uuid, gpu.jobs) for gpu in after)
        if runs != runs_of((gpu.gpu_uuid, gpu.jobs) for gpu in before):
            save_runs(connection, self.node.node_id, runs, self.at)

    def note_claimed_twice(self, gpu_uuids: list[str]) -> None:
        """Say so once."""
        _log.warning("gpus_claimed_twice", node_id=self.node.node_id, gpu_uuids=gpu_uuids)
