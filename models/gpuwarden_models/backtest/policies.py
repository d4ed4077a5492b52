"""`gpuwarden policy simulate`: what two policies would have done about what a fleet showed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from gpuwarden_models.backtest.history import History
from gpuwarden_models.backtest.player import Player
from gpuwarden_models.backtest.running import Progress, silent
from gpuwarden_models.frames import Frame
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.policy.document import Decision, DecisionMove, PolicyDocument
from gpuwarden_verdict.policy.forms import comparison_form
from gpuwarden_verdict.policy.tally import Spell, spells_of
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

_REPAIRER = "simulated repair"
_OUT = frozenset({EntityState.EXCLUDED, EntityState.DRAINING})


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """Both policies over the same time.

    Attributes:
        source: Where the history came from.
        start: Epoch seconds.
        end: Epoch seconds.
        nodes: Number of nodes.
        gpus: Number of GPUs.
        versions: Of both policies.
        before: What the one did.
        after: What the other did.
        repair_h: After how many hours out an entity was taken as repaired, 0 for never.
        cpu_s: Processor time, seconds.
    """

    source: str
    start: float
    end: float
    nodes: int
    gpus: int
    versions: tuple[str, str]
    before: tuple[Spell, ...]
    after: tuple[Spell, ...]
    repair_h: float
    cpu_s: float

    def form(self) -> dict[str, Any]:
        """As JSON, in the words of the server's simulation."""
        return {
            "before": self.versions[0],
            "after": self.versions[1],
            "recording": {
                "source": self.source,
                "start": self.start,
                "end": self.end,
                "nodes": self.nodes,
                "gpus": self.gpus,
                "repair_hours": self.repair_h,
                "cpu_s": self.cpu_s,
            },
            **comparison_form(self.before, self.after),
        }


class _Side:
    """One policy's judge."""

    def __init__(
        self, policy: PolicyDocument, history: History, models: FusionModels, repair_h: float
    ) -> None:
        self._engine = FleetEngine(policy, models=models)
        self._player = Player(self._engine, history)
        self._repair_s = repair_h * 3600.0
        self._repaired: dict[str, float] = {}

    def play(self, frame: Frame) -> None:
        """A frame, and the repair of what has been out for long enough."""
        self._player.play(frame)
        if self._repair_s > 0:
            for decision in self._engine.live_decisions:
                if covers(decision) and self._is_due(decision, frame.at):
                    self._repair(decision, frame.at)

    def spells(self, gpus_on: dict[str, int], end: float) -> tuple[Spell, ...]:
        """What was done."""

        def gpus_in(entity: EntityRef) -> int:
            return gpus_on.get(entity.node_id, 0) if entity.kind is EntityKind.NODE else 1

        moves = (move for move in self._engine.moves if isinstance(move, DecisionMove))
        return tuple(spells_of(moves, self._engine.pool_name, gpus_in, end))

    def _is_due(self, decision: Decision, at: float) -> bool:
        since = self._repaired.get(decision.id, decision.decided_at)
        return at - since >= self._repair_s

    def _repair(self, decision: Decision, at: float) -> None:
        """Somebody repairs it, and a check passes: what is still wrong is seen anew."""
        target = decision.entity
        self._repaired[decision.id] = at
        if self._engine.state_of(target) not in _OUT:
            return
        self._engine.begin_repair(target, _REPAIRER, "out for long enough", at)
        passed = Event(
            id=f"{_REPAIRER}:{decision.id}:{at:.0f}",
            kind=EventKind.CHECK_PASSED,
            observed_at=at,
            entity_kind=target.kind,
            entity=target.key if target.kind is EntityKind.GPU else "",
        )
        self._engine.tell(target.node_id, passed, at)


def simulate_policies(
    history: History,
    source: str,
    policies: tuple[PolicyDocument, PolicyDocument],
    models: FusionModels,
    repair_h: float,
    progress: Progress = silent,
) -> PolicyRun:
    """Play a history through two judges, each with its policy as it stands, caps and modes too.

    Args:
        history: What the fleet showed.
        source: Where it came from.
        policies: The present one and the other.
        models: The learnt scores; without any, rules judge alone. Their gate is closed, as on a
            server without a trial.
        repair_h: Hours after which what is out is repaired and passes a check, 0 for never: nobody
            repairs in a recording, so that caps would fill up.
        progress: Told how far it is.

    Raises:
        RecordingError: A file of the recording broke off in the middle.
    """
    began = time.process_time()
    same = policies[0].version == policies[1].version
    sides = [_Side(one, history, models, repair_h) for one in policies[: 1 if same else 2]]
    length = max(history.end - history.start, history.interval_s)
    gpus_on: dict[str, int] = {}
    for frame in history.frames():
        gpus_on = gpus_on or _gpus_on(frame)
        for side in sides:
            side.play(frame)
        progress(min(1.0, (frame.at - history.start) / length))
    told = [side.spells(gpus_on, history.end) for side in sides]
    return PolicyRun(
        source=source,
        start=history.start,
        end=history.end,
        nodes=len(history.nodes),
        gpus=sum(gpus_on.values()),
        versions=(policies[0].version, policies[1].version),
        before=told[0],
        after=told[-1],
        repair_h=repair_h,
        cpu_s=time.process_time() - began,
    )


def _gpus_on(frame: Frame) -> dict[str, int]:
    """GPUs by node."""
    counted: dict[str, int] = {}
    for table in frame.tables:
        if table.kind is EntityKind.GPU:
            for node in table.node_of.tolist():
                name = frame.nodes[node]
                counted[name] = counted.get(name, 0) + 1
    return counted
