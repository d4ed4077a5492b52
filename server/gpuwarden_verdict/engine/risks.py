"""The learnt score beside the rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import FusionModel, Gate, TrialRun, fuse_suspects, score_gate
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal

OPEN = Gate(missing=())


class ModelRisks:
    """Scores suspects by one model; without a model there are no risks, and rules judge alone."""

    def __init__(
        self,
        model: FusionModel | None,
        trial: TrialRun | None = None,
        *,
        gate_open: bool = False,
    ) -> None:
        """Take a model.

        Args:
            model: None for none.
            trial: Of the model on this fleet, None for none.
            gate_open: Let the score exclude whatever the gate says: what would it have done?
        """
        self._model = model
        self._trial = trial
        self._gate_open = gate_open

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        """Risks of the GPUs worth one; see `RiskSource`."""
        if self._model is None:
            return []
        return fuse_suspects(self._model, scene, watched, signals, now)

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing."""
        return OPEN if self._gate_open else score_gate(self._model, risk, pool, self._trial)
