"""The learnt scores beside the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import (
    FusionModels,
    Gate,
    TrialRun,
    fuse_suspects,
    planes_gate,
    score_gate,
)
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal
from gpuwarden_wire.metrics import EntityKind

NO_MODELS: FusionModels = MappingProxyType({})
NO_TRIALS: Mapping[EntityKind, Sequence[TrialRun]] = MappingProxyType({})


class ModelRisks:
    """Scores suspects by a model a kind; where a kind has none, rules judge it alone."""

    def __init__(
        self,
        models: FusionModels = NO_MODELS,
        trials: Mapping[EntityKind, Sequence[TrialRun]] = NO_TRIALS,
        *,
        gate_open: bool = False,
    ) -> None:
        """Take models.

        Args:
            models: By the kind that they score.
            trials: Of each on this fleet, the best first; none of what was not tried.
            gate_open: Take policy and trial as fulfilled: what would the scores have done? What the
                gate asks of each risk, evidence from several planes, is asked all the same.
        """
        self._models = models
        self._trials = trials
        self._gate_open = gate_open

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        """Risks of the entities worth one; see `RiskSource`."""
        return fuse_suspects(self._models, scene, watched, signals, now) if self._models else []

    def model_of(self, kind: EntityKind) -> str:
        """Version of the model in use for a kind; see `RiskSource`."""
        model = self._models.get(kind)
        return "" if model is None else model.version

    def may_exclude(self, kind: EntityKind, version: str, pool: PoolPolicy) -> bool:
        """Whether what a model said may still exclude; see `RiskSource`."""
        if self._gate_open:
            return True
        model = self._models.get(kind)
        return version == self.model_of(kind) and (
            score_gate(model, None, pool, self._trials.get(kind, ())).open
        )

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing; for GPUs without a risk."""
        if self._gate_open:
            return planes_gate(risk)
        kind = EntityKind.GPU if risk is None else risk.entity.kind
        return score_gate(self._models.get(kind), risk, pool, self._trials.get(kind, ()))
