"""What the read routes answer from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.endpoints import CostTeller
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.history.feature import History
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_server.judging.troubles import TroubleBook
from gpuwarden_server.learning.scorer import Scorer
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.facts import FleetFacts
from gpuwarden_verdict.engine.fleet import GpuRecord, NodeRecord
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.tuning.limits import Threshold


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Everything that is read; nothing here writes.

    Attributes:
        state: state.db.
        guarded: Columnar state.
        directory: Nodes and GPUs.
        board: Standings and verdicts.
        facts: Who is heard of.
        troubles: Agents' own trouble.
        placements: Rules, and where nodes are.
        scorer: The learnt score.
        clock: Time.
        history: What was measured.
        thresholds: Limits in force.
        scene: What features are made of.
        ledger: What is on record of parts.
        standby: What the book of spares says of a node, "" for nothing.
        costs: What decisions saved and lost, by id.
    """

    state: Database
    guarded: GuardedState
    directory: FleetDirectory
    board: VerdictBoard
    facts: FleetFacts
    troubles: TroubleBook
    placements: Placements
    scorer: Scorer
    clock: Clock
    history: History
    thresholds: Callable[[], Sequence[Threshold]]
    scene: Callable[[], FeatureScene]
    ledger: Callable[[], LedgerReading]
    standby: Callable[[str], str]
    costs: CostTeller

    def node(self, node_id: str) -> NodeRecord:
        """One node.

        Raises:
            ProblemError: 404.
        """
        found = self.directory.node(node_id)
        if found is None:
            raise ProblemError(404, "not_found", f"no node {node_id!r}", "See GET /v1/nodes.")
        return found

    def gpu(self, gpu_uuid: str) -> GpuRecord:
        """One GPU.

        Raises:
            ProblemError: 404.
        """
        found = self.directory.gpu(gpu_uuid)
        if found is None:
            raise ProblemError(404, "not_found", f"no GPU {gpu_uuid!r}", "See GET /v1/gpus.")
        return found
