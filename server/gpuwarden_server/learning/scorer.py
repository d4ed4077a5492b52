"""Asks the models in every sweep; where there is none there are no risks, and rules judge alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpuwarden_server.learning.registry.shelf import ModelShelf
from gpuwarden_server.learning.watching import Watcher
from gpuwarden_verdict.engine.risks import ModelRisks
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import Explanation, Gate, TrialRun, explain_risk, fuse_risks
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal
from gpuwarden_wire.metrics import EntityKind


class Scorer:
    """The learnt scores; the judge's thread asks for suspects, anybody for one or the gate."""

    def __init__(self, shelf: ModelShelf, watcher: Watcher) -> None:
        """Score by what is on the shelf, whenever that changes.

        Args:
            shelf: The models in use.
            watcher: Told of each sweep.
        """
        self._shelf = shelf
        self._watcher = watcher
        self._trials: Mapping[EntityKind, Sequence[TrialRun]] = {}
        self._renew()
        shelf.follow(self._renew)

    def take_trials(self, trials: Mapping[EntityKind, Sequence[TrialRun]]) -> None:
        """Let the gate go by these trials on this fleet, the best first, from now on."""
        self._trials = trials
        self._renew()

    def _renew(self) -> None:
        self._risks = ModelRisks(self._shelf.promoted(), self._trials)

    @property
    def version(self) -> str:
        """Versions of the models, "" for none."""
        return ", ".join(model.version for model in self._shelf.promoted().values())

    @property
    def trouble(self) -> str:
        """Why what was chosen does not score and what to do, "" where all does."""
        return self._shelf.trouble

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        """Risks of the entities worth one; none of a kind without a model.

        Args:
            scene: The windows, and what is known of the fleet besides.
            watched: Entities that get a risk however low it is.
            signals: What the sweep's detectors said.
            now: Epoch seconds.
        """
        risks = self._risks.score(scene, watched, signals, now)
        self._watcher.seen(scene, risks, signals, now)
        return risks

    def score_one(self, scene: FeatureScene, ref: EntityRef, now: float) -> Risk | None:
        """Risk of one entity by its readings alone; None without a model or any reading of it.

        Args:
            scene: The windows, and what is known of the fleet besides.
            ref: The entity.
            now: Epoch seconds.
        """
        return next(iter(fuse_risks(self._shelf.promoted(), scene, [ref], (), now)), None)

    def explain(self, risk: Risk) -> Explanation | None:
        """A risk in words; None for one of a model that judges no more."""
        model = self._shelf.promoted().get(risk.entity.kind)
        if model is None or model.version != risk.model_version:
            return None
        return explain_risk(model, risk)

    def model_of(self, kind: EntityKind) -> str:
        """Version of the model in use for a kind, "" where rules judge it alone."""
        return self._risks.model_of(kind)

    def may_exclude(self, kind: EntityKind, version: str, pool: PoolPolicy) -> bool:
        """Whether what a model said may still exclude; see `RiskSource`."""
        return self._risks.may_exclude(kind, version, pool)

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing."""
        return self._risks.gate(risk, pool)
