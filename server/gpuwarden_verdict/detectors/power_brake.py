"""The power brake: the machine or the rack tells its GPUs to slow down for want of power.

The software power cap is no fault and nobody reads it here: under load a GPU runs at its cap in
nine samples of ten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.growth import GrowthDetector
from gpuwarden_verdict.detectors.making import HOUR_S
from gpuwarden_verdict.detectors.reading import Bool, clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

METRIC = "gpu_power_brake_seconds_total"
LIMIT_S = 30.0
"""Within an hour; a brake of a supply that switches over lasts a second or two (assumed)."""
QUIET_S = HOUR_S
MOST_GPUS = 0.5
"""Of a node's GPUs: the brake is one wire to all of them, so that more than half mean the node."""
_SCORE = 0.6


class PowerBrakeDetector:
    """Signals of nodes whose GPUs are braked, or of single GPUs where most others are not."""

    name = "power_brake"
    version = 1
    speaks_for = frozenset({"power_brake"})
    about = About(
        Plane.COUNTERS,
        (METRIC,),
        "power supply or rack slows GPUs down",
        f">= {LIMIT_S:.0f} seconds within an hour; more than half of a node's GPUs mean the node",
        Rung.SUSPECT,
        "an hour without, or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a node, or a GPU."""
        view, nodes = state.view(EntityKind.GPU), state.view(EntityKind.NODE)
        seconds = view.increment_1h(METRIC)
        braked = _braked(view, seconds)
        if not braked.any():
            return []
        braked &= fresh(state, view, METRIC, fleet)
        number = np.bincount(view.node_rows, minlength=len(nodes))
        share = np.bincount(view.node_rows[braked], minlength=len(nodes)) / np.maximum(number, 1)
        whole = share > MOST_GPUS
        longest = np.zeros(len(nodes))
        np.maximum.at(longest, view.node_rows[braked], seconds[braked])
        signals = [self._signal(ref, float(longest[row]), now) for row, ref in hits(nodes, whole)]
        single = braked & ~whole[view.node_rows]
        return signals + [
            self._signal(ref, float(seconds[row]), now) for row, ref in hits(view, single)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that were not braked for an hour, and nodes none of whose GPUs were."""
        view, nodes = state.view(EntityKind.GPU), state.view(EntityKind.NODE)
        with np.errstate(invalid="ignore"):
            quiet = view.steady_s(METRIC) >= QUIET_S
        quiet &= fresh(state, view, METRIC, fleet)
        number = np.bincount(view.node_rows, minlength=len(nodes))
        whole = np.bincount(view.node_rows[quiet], minlength=len(nodes)) == number
        why = "the power brake has been off for an hour"
        return [
            recovery
            for kind, clear in ((EntityKind.GPU, quiet), (EntityKind.NODE, whole & (number > 0)))
            for recovery in clear_recoveries(
                state, kind, entities, clear, self.speaks_for, now, lambda _row: why
            )
        ]

    def _signal(self, ref: EntityRef, seconds: float, now: float) -> Signal:
        whole = ref.kind is EntityKind.NODE
        who = f"the GPUs of node {ref.key}" if whole else f"GPU {ref.key}"
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.POWER,
            score=_SCORE,
            severity=Severity.ERROR,
            sentence=f"power supply or rack brakes {who}: about {seconds:.0f} s within an hour",
            numbers={METRIC: seconds},
            thresholds={METRIC: LIMIT_S},
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.SUSPECT,
        )


def _braked(view: KindView, seconds: F32) -> Bool:
    with np.errstate(invalid="ignore"):
        braked: Bool = (seconds >= LIMIT_S) & (view.steady_s(METRIC) < QUIET_S)
    return braked


BOARD_SLOWDOWN = GrowthDetector(
    name="board_slowdown",
    version=1,
    metrics=("gpu_board_limit_seconds_total", "gpu_reliability_violation_seconds_total"),
    # NVML_PERF_POLICY_BOARD_LIMIT, …_RELIABILITY: voltage or current of the board (limit assumed)
    limit=60.0,
    window_s=HOUR_S,
    fault_class=FaultClass.POWER,
    score=0.35,
    severity=Severity.WARNING,
    says="the board's own limit of voltage or current slows the GPU down",
    unit="seconds",
)
