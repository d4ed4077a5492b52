"""Heat by the GPU's own limits: what is left before it slows down, and how long it did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import HOUR_S
from gpuwarden_verdict.detectors.reading import Bool, clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

LEAST_COVERAGE_S = 60.0
"""Of readings, before a mean of a minute is one."""
CLEAR_C = 5.0
"""So much cooler than where it is told it is clear; between the two nothing is said."""
_SCORE, _SCORE_BEYOND = 0.4, 0.6


@dataclass(frozen=True, slots=True)
class HeadroomDetector:
    """Signals of parts that stay within a few degrees of a limit of their own.

    The mean of the last minute counts, so that a peak says nothing. Advice: cooling is the room's
    or the chassis's as often as the GPU's, and the GPU protects itself.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: Temperature, or degrees left.
        limit_metric: The limit that the temperature is held against, "" where `metric` is what is
            left.
        near_c: Told with so many degrees left, or fewer.
        says: What is hot, in words.
        at_limit: What happens with none left, in words.
    """

    name: str
    version: int
    metric: str
    limit_metric: str
    near_c: float
    says: str
    at_limit: str

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        reads = (self.metric, self.limit_metric) if self.limit_metric else (self.metric,)
        return About(
            Plane.COUNTERS,
            reads,
            f"{self.says} is near where {self.at_limit}",
            f"<= {self.near_c:g} C left, in the mean of a minute",
            Rung.SUSPECT,
            f"{CLEAR_C:g} C cooler, or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        left, mean = self._left(view)
        with np.errstate(invalid="ignore"):
            near: Bool = (left <= self.near_c) & (mean <= self.near_c)
        if not near.any():
            return []
        with np.errstate(invalid="ignore"):
            near &= view.coverage_s(self.metric) >= LEAST_COVERAGE_S
        near &= self._read(state, view, fleet)
        return [self._signal(ref, float(left[row]), now) for row, ref in hits(view, near)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs with several degrees more."""
        view = state.view(EntityKind.GPU)
        left, mean = self._left(view)
        with np.errstate(invalid="ignore"):
            cool: Bool = (left > self.near_c + CLEAR_C) & (mean > self.near_c + CLEAR_C)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            cool & self._read(state, view, fleet),
            self.speaks_for,
            now,
            lambda row: f"{left[row]:.0f} C are left",
        )

    def _left(self, view: KindView) -> tuple[F32, F32]:
        """Degrees left now and in the mean of a minute, each shape (N,)."""
        if not self.limit_metric:
            return view.last(self.metric), view.ewma_fast(self.metric)
        limit = view.last(self.limit_metric)
        return limit - view.last(self.metric), limit - view.ewma_fast(self.metric)

    def _read(self, state: FleetReading, view: KindView, fleet: FleetContext) -> Bool:
        read = fresh(state, view, self.metric, fleet)
        return read & fresh(state, view, self.limit_metric, fleet) if self.limit_metric else read

    def _signal(self, ref: EntityRef, left: float, now: float) -> Signal:
        beyond = left <= 0
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.THERMAL,
            score=_SCORE_BEYOND if beyond else _SCORE,
            severity=Severity.ERROR if beyond else Severity.WARNING,
            sentence=f"{self.says} of GPU {ref.key} is {left:.0f} C from where {self.at_limit}",
            numbers={"celsius_left": left},
            thresholds={"celsius_left": self.near_c},
            max_rung=Rung.SUSPECT,
        )


THERMAL_MARGIN = HeadroomDetector(
    name="thermal_margin",
    version=1,
    metric="gpu_temperature_margin_celsius",  # nvmlDeviceGetMarginTemperature: alike on any model
    limit_metric="",
    near_c=2.0,
    says="the temperature",
    at_limit="it slows down",
)
SHUTDOWN_NEAR = HeadroomDetector(
    name="shutdown_near",
    version=1,
    metric="gpu_temperature_celsius",
    limit_metric="gpu_shutdown_temperature_celsius",
    near_c=3.0,
    says="the temperature",
    at_limit="it shuts down",
)
MEMORY_HOT = HeadroomDetector(
    name="memory_hot",
    version=1,
    metric="gpu_memory_temperature_celsius",
    limit_metric="gpu_memory_temperature_max_celsius",
    near_c=3.0,
    says="the memory's temperature",
    at_limit="its operating range ends",
)
HARDWARE_SLOWDOWN = GrowthDetector(
    name="thermal_slowdown",
    version=2,
    metrics=("gpu_thermal_slowdown_seconds_total",),
    # the hardware halves the clock, or worse, to save itself (NVML, clock event reasons); a minute
    # within an hour is no single peak (assumed)
    limit=60.0,
    window_s=HOUR_S,
    fault_class=FaultClass.THERMAL,
    score=0.6,
    severity=Severity.ERROR,
    says="the hardware slows the GPU down for heat",
    unit="seconds",
    # a GPU that is slowed down alone holds its whole job back, and is not in a hot room; it takes
    # evidence of another kind to exclude it
    alone_rung=Rung.EXCLUDE,
)
SOFTWARE_SLOWDOWN = GrowthDetector(
    name="thermal_slowdown_software",
    version=1,
    metrics=("gpu_software_thermal_slowdown_seconds_total", "gpu_thermal_violation_seconds_total"),
    # the driver holds the temperature at its target by lower clocks: ten minutes within an hour
    # cost work (assumed)
    limit=600.0,
    window_s=HOUR_S,
    fault_class=FaultClass.THERMAL,
    score=0.4,
    severity=Severity.WARNING,
    says="the driver slows the GPU down for heat",
    unit="seconds",
)
THERMAL = (THERMAL_MARGIN, SHUTDOWN_NEAR, MEMORY_HOT, HARDWARE_SLOWDOWN, SOFTWARE_SLOWDOWN)
