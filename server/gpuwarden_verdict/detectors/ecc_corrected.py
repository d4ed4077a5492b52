"""Corrected ECC errors at a rate that no sound memory has: a hint, never a reason to exclude."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.detectors.reading import Bool, clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

METRICS = ("gpu_ecc_corrected_volatile_total", "gpu_ecc_dram_corrected_volatile_total")

AN_HOUR = 3600.0
"""Errors within an hour: one a second. Most GPUs correct none for weeks (assumed; NVIDIA gives no
limit: "Correctable HBM errors are outside the scope", GPU Memory Error Management)."""
A_SECOND = 100.0
"""Errors a second now. NVSentinel#1748, DCGM#313: 17,700 a second under load, 54.7 billion in all,
and every health check passed."""
TREND_ERRORS = 1000.0
"""Fewer within a day are no trend, whatever they grow from."""
TREND_TIMES = 5.0
"""The last hour holds this many times an hour's share of the day: it is getting worse."""
WATCHED_SHARE = 0.999
"""Of the hour's decayed coverage: a GPU that has been watched for less than about six hours has a
short day, of which a steady hour is a big share."""
_SCORE_HOUR, _SCORE_SECOND, _SCORE_TREND = 0.4, 0.6, 0.35
_MAX_RUNG = Rung.SUSPECT
"""Each error was corrected: work and its results are sound."""
_CLEAR_SHARE = 0.25


class EccCorrectedDetector:
    """Signals of GPUs that correct memory errors at a high or a growing rate.

    Advice at most. The two rates stand beside each other in the learned score's features too.
    """

    name = "ecc_corrected"
    version = 1
    speaks_for = frozenset({"ecc_corrected"})
    about = About(
        Plane.COUNTERS,
        METRICS,
        "corrected memory errors at a rate that sound memory does not have",
        f">= {AN_HOUR:.0f} within an hour, or >= {A_SECOND:.0f} a second, or >= "
        f"{TREND_ERRORS:.0f} within a day of which the last hour has {TREND_TIMES:.0f} times its "
        "share",
        _MAX_RUNG,
        "a quarter of the rate, or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        told: dict[int, Signal] = {}
        for metric in METRICS:
            hour, rate = view.increment_1h(metric), view.ewma_fast(metric)
            with np.errstate(invalid="ignore"):
                high: Bool = (hour >= AN_HOUR) | (rate >= A_SECOND)
            growing = _growing(view, metric, hour)
            if not (high | growing).any():
                continue
            seen = (high | growing) & fresh(state, view, metric, fleet)
            for row, ref in hits(view, seen):
                signal = self._signal(ref, metric, float(hour[row]), float(rate[row]), now)
                told.setdefault(row, signal)
        return [told[row] for row in sorted(told)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs whose rates are far below the limits."""
        view = state.view(EntityKind.GPU)
        read = np.zeros(len(view), dtype=np.bool_)
        loud = np.zeros(len(view), dtype=np.bool_)
        for metric in METRICS:
            read |= fresh(state, view, metric, fleet)
            hour = view.increment_1h(metric)
            with np.errstate(invalid="ignore"):
                loud |= hour >= AN_HOUR * _CLEAR_SHARE
                loud |= view.ewma_fast(metric) >= A_SECOND * _CLEAR_SHARE
            loud |= _growing(view, metric, hour)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            read & ~loud,
            self.speaks_for,
            now,
            lambda _row: "few memory errors have to be corrected now",
        )

    def _signal(self, ref: EntityRef, metric: str, hour: float, rate: float, now: float) -> Signal:
        if rate >= A_SECOND:
            score, limits = _SCORE_SECOND, {"errors_per_second": A_SECOND}
        elif hour >= AN_HOUR:
            score, limits = _SCORE_HOUR, {"errors_within_an_hour": AN_HOUR}
        else:
            score, limits = _SCORE_TREND, {"times_the_share_of_the_day": TREND_TIMES}
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.MEMORY,
            score=score,
            severity=Severity.WARNING,
            sentence=f"GPU {ref.key} corrects memory errors at {rate:,.1f} a second, about "
            f"{hour:,.0f} within an hour ({metric}): its memory wears out",
            numbers={"errors_per_second": rate, "errors_within_an_hour": hour},
            thresholds=limits,
            action=RecommendedAction.INVESTIGATE,
            max_rung=_MAX_RUNG,
        )


def _growing(view: KindView, metric: str, hour: F32) -> Bool:
    """Where the last hour has far more than its share of a whole day that was watched."""
    day = view.increment_24h(metric)
    with np.errstate(invalid="ignore"):
        enough = (day >= TREND_ERRORS) & (view.coverage_s(metric) >= WATCHED_SHARE * HOUR_S)
        growing: Bool = enough & (hour >= TREND_TIMES * day * (HOUR_S / DAY_S))
        growing &= view.ewma_slow(metric) > 0
    return growing
