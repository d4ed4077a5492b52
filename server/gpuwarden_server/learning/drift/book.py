"""Drift of the models that judge: noted in the judge's thread, read from any."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import structlog
from prometheus_client import CollectorRegistry, Gauge

from gpuwarden_server.learning.drift.domain import DriftReport, DriftWatch
from gpuwarden_verdict.features import FeatureScene, feature_table
from gpuwarden_verdict.fusion import FusionModel, FusionModels
from gpuwarden_verdict.signals import Risk
from gpuwarden_wire.metrics import EntityKind

MOST_ROWS = 512
"""Entities of a kind that are looked at at once, evenly taken: more would say nothing new."""
Key = tuple[str, str]
_log = structlog.get_logger(__name__)


class DriftMeters:
    """How features and alarms stand beside training."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shift = Gauge(
            "gpuwarden_model_feature_shift_ratio",
            "Share of the fleet by which a feature lies elsewhere than in training.",
            ["kind", "feature"],
            registry=registry,
        )
        self.drifted = Gauge(
            "gpuwarden_model_drifted_features",
            "Features that are not as in training, beyond what chance moves.",
            ["kind"],
            registry=registry,
        )
        self.alarms = Gauge(
            "gpuwarden_model_alarms_per_entity_day",
            "Entities that came above the operating point, an entity and day.",
            ["kind"],
            registry=registry,
        )
        self.expected = Gauge(
            "gpuwarden_model_alarms_expected_per_entity_day",
            "The same on the nodes that tested the model.",
            ["kind"],
            registry=registry,
        )

    def tell(self, kind: EntityKind, report: DriftReport) -> None:
        """Show how one model stands."""
        self.drifted.labels(kind.value).set(len(report.drifted))
        for name, shift in report.shifts:
            self.shift.labels(kind.value, name).set(shift)
        if report.alarms_a_day is not None:
            self.alarms.labels(kind.value).set(report.alarms_a_day)
        if report.alarms_expected is not None:
            self.expected.labels(kind.value).set(report.alarms_expected)


class DriftBook:
    """One watch a model that judges; begins anew with another version, and with the server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._meters = DriftMeters(registry)
        self._watches: dict[EntityKind, DriftWatch] = {}
        self._reports: Mapping[EntityKind, DriftReport] = {}
        self._warned: dict[EntityKind, str] = {}

    def reports(self) -> Mapping[EntityKind, DriftReport]:
        """How each model stood when it was looked at last."""
        return self._reports

    def note_alarms(
        self,
        models: FusionModels,
        risks: Collection[Risk],
        seen: Mapping[EntityKind, int],
        now: float,
    ) -> None:
        """Count who came above the operating point in this sweep."""
        for kind, model in models.items():
            alarmed = [
                risk.entity.key
                for risk in risks
                if risk.entity.kind is kind and risk.probability >= model.operating_point
            ]
            self._watch(kind, model).add_alarms(alarmed, seen.get(kind, 0), now)

    def look(
        self, models: FusionModels, scene: FeatureScene, troubled: Collection[Key], now: float
    ) -> None:
        """Compare what is ordinary now with training.

        Args:
            models: The models that judge.
            scene: The fleet.
            troubled: Who has an incident: not ordinary.
            now: Epoch seconds.
        """
        reports = {}
        for kind, model in models.items():
            watch = self._watch(kind, model)
            count = int((~np.isnan(scene.state.view(kind).last_seen_at())).sum())
            step = max(1, -(-count // MOST_ROWS))
            table = feature_table(kind, scene, now, np.arange(0, count, step, dtype=np.int64))
            calm = [(kind.value, ref.key) not in troubled for ref in table.refs]
            watch.add_rows(table.matrix[np.array(calm, np.bool_)], now)
            reports[kind] = watch.report(now)
            self._meters.tell(kind, reports[kind])
            self._tell_once(kind, reports[kind])
        self._reports = reports

    def _watch(self, kind: EntityKind, model: FusionModel) -> DriftWatch:
        known = self._watches.get(kind)
        if known is None or known.model is not model:
            known = self._watches[kind] = DriftWatch(model)
            self._meters.shift.clear()
        return known

    def _tell_once(self, kind: EntityKind, report: DriftReport) -> None:
        """Log on a change of state, and on the return."""
        names = ",".join(sorted(one.feature for one in report.drifted))
        state = f"{names}|{report.alarms_rose}" if report.warning else ""
        if state == self._warned.get(kind, ""):
            return
        self._warned[kind] = state
        if state:
            _log.warning("model_drifts", kind=kind.value, reason=report.warning)
        else:
            _log.info("model_drifts_no_more", kind=kind.value)
