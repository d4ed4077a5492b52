"""A driver that takes ever longer to answer: by itself a hint, beside other trouble a fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.peer_groups import UNKNOWN_GROUP, group_median, model_codes
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F64
from gpuwarden_wire.metrics import EntityKind

FEWEST_PEERS = 8
TIMES_USUAL = 20.0
"""Of what peers take; a probe that waits for another one takes a few times as long (assumed)."""
LEAST_COVERAGE_S = 60.0
CLEAR_SHARE = 0.3
_SCORE = 0.4


@dataclass(frozen=True, slots=True)
class ProbeSlowDetector:
    """Signals where reading a GPU, or all GPUs of a node, takes far longer than elsewhere.

    The mean of the last minute counts, once it is both slow in itself and far slower than at peers:
    when a whole fleet is slow, its driver or its agent is so. DCGM#313: calls that take 45 s were
    the only other sign of a GPU that corrected 17,000 memory errors a second.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: Seconds that it takes.
        kind: What it speaks about.
        limit_s: Less is never slow.
        says: What is slow, in words.
    """

    name: str
    version: int
    metric: str
    kind: EntityKind
    limit_s: float
    says: str

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        return About(
            Plane.STRUCTURE,
            (self.metric,),
            f"{self.says} takes long: the driver answers slowly",
            f">= {self.limit_s:g} s in the mean of a minute, and {TIMES_USUAL:.0f} times what "
            "peers take; not in the grace after a boot",
            Rung.SUSPECT,
            f"{CLEAR_SHARE:.0%} of the limit, or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU or node."""
        view = state.view(self.kind)
        mean = view.ewma_fast(self.metric)
        with np.errstate(invalid="ignore"):
            slow: Bool = mean >= self.limit_s
        if not slow.any():
            return []
        allowed = self._allowed(state, view, fleet)
        with np.errstate(invalid="ignore"):
            slow &= (mean >= allowed) & (view.coverage_s(self.metric) >= LEAST_COVERAGE_S)
        slow &= fresh(state, view, self.metric, fleet) & ~in_boot_grace(state, view, fleet, now)
        return [
            self._signal(ref, float(mean[row]), float(allowed[row]), now)
            for row, ref in hits(view, slow)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Those that answer fast again."""
        view = state.view(self.kind)
        mean = view.ewma_fast(self.metric)
        with np.errstate(invalid="ignore"):
            quick = mean < CLEAR_SHARE * self._allowed(state, view, fleet)
        return clear_recoveries(
            state,
            self.kind,
            entities,
            quick & fresh(state, view, self.metric, fleet),
            self.speaks_for,
            now,
            lambda row: f"it takes {mean[row]:.2f} s again",
        )

    def _allowed(self, state: FleetReading, view: KindView, fleet: FleetContext) -> F64:
        """From how many seconds on it is slow, shape (N,)."""
        if self.kind is EntityKind.GPU:
            groups = model_codes(view, fleet)
        else:
            read = fresh(state, view, self.metric, fleet)
            groups = np.where(read, 0, UNKNOWN_GROUP)
        usual = group_median(view.ewma_fast(self.metric), groups, FEWEST_PEERS)
        return np.fmax(self.limit_s, TIMES_USUAL * usual)

    def _signal(self, ref: EntityRef, mean: float, allowed: float, now: float) -> Signal:
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.DRIVER,
            score=_SCORE,
            severity=Severity.WARNING,
            sentence=f"the NVIDIA driver answers slowly: {self.says} {ref.key} takes {mean:.1f} s",
            numbers={self.metric: mean},
            thresholds={self.metric: allowed},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        )


PROBE_SLOW = ProbeSlowDetector(
    name="probe_slow",
    version=1,
    metric="gpu_probe_seconds",
    kind=EntityKind.GPU,
    limit_s=2.0,  # tens of milliseconds are usual
    says="reading GPU",
)
POLL_SLOW = ProbeSlowDetector(
    name="poll_slow",
    version=1,
    metric="node_nvml_poll_seconds",
    kind=EntityKind.NODE,
    limit_s=15.0,  # eight GPUs, one after the other
    says="reading the GPUs of node",
)
