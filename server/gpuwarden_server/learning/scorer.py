"""Asks the model in every sweep; without a model there are no risks, and rules judge alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog
from prometheus_client import CollectorRegistry, Gauge

from gpuwarden_server.learning.models import LoadedModel
from gpuwarden_verdict.engine.risks import ModelRisks
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import Gate, fuse_risks
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal

_log = structlog.get_logger(__name__)


class Scorer:
    """The learnt score; the judge's thread asks for suspects, anybody for one GPU or the gate."""

    def __init__(self, loaded: LoadedModel, registry: CollectorRegistry) -> None:
        """Take a model, or none, and say which on the log and in the metrics."""
        self._loaded = loaded
        # No trial on the user's own fleet is recorded yet, so the gate is closed and says so.
        self._risks = ModelRisks(loaded.model)
        gauge = Gauge(
            "gpuwarden_model_loaded",
            "1 while a learnt model scores, 0 while rules judge alone.",
            ["version"],
            registry=registry,
        )
        gauge.labels(version=self.version).set(1 if loaded.model is not None else 0)
        if loaded.model is None:
            _log.warning("model_not_loaded", reason=loaded.trouble, effect="rules judge alone")
        else:
            _log.info("model_loaded", version=loaded.model.version)

    @property
    def version(self) -> str:
        """Version of the model, "" for none."""
        return self._loaded.model.version if self._loaded.model is not None else ""

    @property
    def trouble(self) -> str:
        """Why no model is loaded and what to do, "" where one is."""
        return self._loaded.trouble

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        """Risks of the GPUs worth one; none without a model.

        Args:
            scene: The windows, and what is known of the fleet besides.
            watched: GPUs that get a risk however low it is.
            signals: What the sweep's detectors said.
            now: Epoch seconds.
        """
        return self._risks.score(scene, watched, signals, now)

    def score_one(self, scene: FeatureScene, ref: EntityRef, now: float) -> Risk | None:
        """Risk of one GPU by its readings alone; None without a model or any reading of it.

        Args:
            scene: The windows, and what is known of the fleet besides.
            ref: The GPU.
            now: Epoch seconds.
        """
        if self._loaded.model is None:
            return None
        return next(iter(fuse_risks(self._loaded.model, scene, [ref], (), now)), None)

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing."""
        return self._risks.gate(risk, pool)
