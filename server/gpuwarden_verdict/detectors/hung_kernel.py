"""A GPU that says it works and draws the power of one that does not: its kernel hangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.load import POWER, POWER_LIMIT, UTILIZATION
from gpuwarden_verdict.detectors.peer_groups import group_highest, group_median, model_codes
from gpuwarden_verdict.detectors.reading import Bool, clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F64
from gpuwarden_wire.metrics import EntityKind

MEMORY_LOAD = "gpu_memory_utilization_ratio"
CLOCK, CLOCK_MAX = "gpu_sm_clock_hertz", "gpu_sm_clock_max_hertz"

FULL = 0.985
"""Mean utilisation of the last minute; a kernel that waits in a loop shows 100 %."""
NO_LOAD = 0.015
"""Use of memory, and of GPUs that count as idle."""
AWAKE = 0.5
"""Of the model's highest clock: an idle GPU with a context of a process keeps its clocks up, and
draws more than one that sleeps (public fleet of H100: 114 W and 71 W)."""
FEWEST_PEERS = 4
ABOVE_IDLE = 1.1
"""Times what idle GPUs of the model with clocks up draw (public fleet of H100: 114 W; GPUs that
hang 113 to 123 W, the least of those that work 265 W)."""
SHARE_OF_LIMIT = 0.18
"""Of the power limit where too few idle peers are awake: an H100 that hangs draws 117 of 700 W."""
LEAST_COVERAGE_S = 300.0
"""Minutes of readings, and five time constants of the mean of a minute."""
_SCORE = 0.4


@dataclass(frozen=True, slots=True)
class _Work:
    """What GPUs say and draw, each shape (N,).

    Attributes:
        hung: Full by its word, idle by its power and its memory.
        power: Mean of the last minute, watts.
        idle: Up to where it is a GPU's that does nothing, watts.
    """

    hung: Bool
    power: F64
    idle: F64


class HungKernelDetector:
    """Signals of GPUs at full utilisation and idle power for minutes, without a sign of memory use.

    A collective whose other ranks are gone looks like this, and so does one that waits for a slow
    rank: it is the job that hangs, and the GPU seldom. Advice to look at the job.
    """

    name = "hung_kernel"
    version = 1
    speaks_for = frozenset({"hung_kernel"})
    about = About(
        Plane.COUNTERS,
        (UTILIZATION, MEMORY_LOAD, POWER, POWER_LIMIT, CLOCK),
        "a kernel hangs: full utilisation at idle power",
        f"utilisation >= {FULL:.1%}, memory use <= {NO_LOAD:.1%}, power <= {ABOVE_IDLE:g} times "
        f"that of idle peers with clocks up, else {SHARE_OF_LIMIT:.0%} of the limit, for "
        f"{LEAST_COVERAGE_S:.0f} s",
        Rung.SUSPECT,
        "work or idleness, or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        work = _work(state, view, fleet)
        if not work.hung.any():
            return []
        with np.errstate(invalid="ignore"):
            long = view.coverage_s(UTILIZATION) >= LEAST_COVERAGE_S
        return [
            self._signal(ref, float(work.power[row]), float(work.idle[row]), now)
            for row, ref in hits(view, work.hung & long)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that work again, or do nothing and say so."""
        view = state.view(EntityKind.GPU)
        read = fresh(state, view, UTILIZATION, fleet) & fresh(state, view, POWER, fleet)
        work = _work(state, view, fleet)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            read & ~work.hung,
            self.speaks_for,
            now,
            lambda row: f"the GPU draws {work.power[row]:.0f} W and its utilisation agrees",
        )

    def _signal(self, ref: EntityRef, power: float, idle: float, now: float) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.UNKNOWN,
            score=_SCORE,
            severity=Severity.WARNING,
            sentence=f"GPU {ref.key} says it is fully used and draws {power:.0f} W, as much as an "
            "idle one: its job may hang",
            numbers={POWER: power},
            thresholds={POWER: idle},
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        )


def _work(state: FleetReading, view: KindView, fleet: FleetContext) -> _Work:
    used, power = view.ewma_fast(UTILIZATION), view.ewma_fast(POWER).astype(np.float64)
    nothing = np.zeros(len(view), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        full: Bool = (used >= FULL) & (view.last(UTILIZATION) >= FULL)
        full &= ~(view.ewma_fast(MEMORY_LOAD) > NO_LOAD)
    if not full.any():
        return _Work(nothing, power, np.full(len(view), np.nan))
    for metric in (UTILIZATION, POWER):
        full &= fresh(state, view, metric, fleet)
    idle = _idle_power(view, fleet)
    with np.errstate(invalid="ignore"):
        low = (power <= idle) & (view.last(POWER) <= idle)
    return _Work(full & low, power, idle)


def _idle_power(view: KindView, fleet: FleetContext) -> F64:
    """Up to where a GPU does nothing, watts, shape (N,); NaN where nobody can say."""
    models = model_codes(view, fleet)
    clock = view.last(CLOCK)
    most = group_highest(np.fmax(view.last(CLOCK_MAX), view.highest(CLOCK)), models)
    with np.errstate(invalid="ignore"):
        resting = (view.ewma_fast(UTILIZATION) <= NO_LOAD) & (view.last(UTILIZATION) <= NO_LOAD)
        awake = resting & (clock >= AWAKE * most)
    drawn = np.where(awake, view.ewma_fast(POWER), np.nan)
    by_peers = ABOVE_IDLE * group_median(drawn, models, FEWEST_PEERS)
    by_limit = SHARE_OF_LIMIT * view.last(POWER_LIMIT).astype(np.float64)
    return np.where(np.isnan(by_peers), by_limit, by_peers)
