"""Asks the models in every sweep; where there is none there are no risks, and rules judge alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import structlog
from prometheus_client import CollectorRegistry, Gauge

from gpuwarden_server.learning.models import LoadedModels
from gpuwarden_verdict.engine.risks import ModelRisks
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.fusion import Gate, fuse_risks
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Risk, Signal

_log = structlog.get_logger(__name__)


class Scorer:
    """The learnt scores; the judge's thread asks for suspects, anybody for one or the gate."""

    def __init__(self, loaded: LoadedModels, registry: CollectorRegistry) -> None:
        """Take models, or none, and say which on the log and in the metrics."""
        self._loaded = loaded
        # No trial on the user's own fleet is recorded yet, so the gate is closed and says so.
        self._risks = ModelRisks(loaded.models)
        gauge = Gauge(
            "gpuwarden_model_loaded",
            "1 while a learnt model scores entities of a kind, 0 while rules judge alone.",
            ["kind", "version"],
            registry=registry,
        )
        for kind, model in loaded.models.items():
            gauge.labels(kind=kind.value, version=model.version).set(1)
            _log.info("model_loaded", kind=kind.value, version=model.version)
        for kind, trouble in loaded.troubles.items():
            gauge.labels(kind=kind.value, version="").set(0)
            _log.warning(
                "model_not_loaded", kind=kind.value, reason=trouble, effect="rules judge alone"
            )

    @property
    def version(self) -> str:
        """Versions of the models, "" for none."""
        return self._loaded.version

    @property
    def trouble(self) -> str:
        """Why a model is not loaded and what to do, "" where all that there are were."""
        return self._loaded.trouble

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
        return self._risks.score(scene, watched, signals, now)

    def score_one(self, scene: FeatureScene, ref: EntityRef, now: float) -> Risk | None:
        """Risk of one entity by its readings alone; None without a model or any reading of it.

        Args:
            scene: The windows, and what is known of the fleet besides.
            ref: The entity.
            now: Epoch seconds.
        """
        return next(iter(fuse_risks(self._loaded.models, scene, [ref], (), now)), None)

    def gate(self, risk: Risk | None, pool: PoolPolicy) -> Gate:
        """Whether the score may exclude by itself, and what is missing."""
        return self._risks.gate(risk, pool)
