"""A GPU far hotter than the GPUs of its model under the same load, near its limit, and for long."""

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
    level_signal,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F64, AnyArray
from gpuwarden_wire.metrics import EntityKind

METRIC = "gpu_temperature_celsius"
LOAD = "gpu_utilization_ratio"
LIMIT = "gpu_slowdown_temperature_celsius"

FEWEST_PEERS = 8
"""One HGX board's worth of GPUs: fewer say nothing about what is usual."""
LEAST_EXCESS_C = 12.0
"""Positions on one board differ by several degrees by design (assumed)."""
MOST_SIGMA = 6.0
LEAST_SPREAD_C = 1.5
"""Whole degrees and tight groups give a MAD of 0; no spread is believed to be smaller."""
_MAD_TO_SIGMA = 1.4826
NEAR_LIMIT_C = 10.0
"""A GPU that is merely warmer than its peers needs no action: only near its slowdown limit."""
LIMIT_WHERE_UNKNOWN_C = 90.0
LEAST_COVERAGE_S = 60.0
CLEAR_SHARE = 0.6
"""Below this share of the excess limit it is clear; between the two nothing is said."""
_IDLE, _BUSY = 0.15, 0.7
_SCORE, _SCORE_AT_LIMIT = 0.5, 0.7


@dataclass(frozen=True, slots=True)
class _Heat:
    """Temperatures beside those of the peers, each shape (N,), Celsius."""

    now: AnyArray
    mean: AnyArray
    usual: F64
    allowed: F64
    limit: AnyArray
    readable: Bool


class TemperaturePeersDetector:
    """Signals of hot GPUs: median and MAD inside model and load band, over several sweeps.

    When all are warm together, the median is warm too and nobody is blamed.
    """

    name = "temperature_peers"
    version = 1
    about = About(
        Plane.PEERS,
        (METRIC, LOAD, LIMIT),
        "a GPU far hotter than its peers under the same load, and near its limit",
        f">= {LEAST_EXCESS_C:.0f} C and {MOST_SIGMA:.0f} sigma above, within "
        f"{NEAR_LIMIT_C:.0f} C of slowdown, for a minute",
        Rung.EXCLUDE,
        "near its peers again, or a passed check",
    )
    speaks_for = frozenset({"temperature_peers"})

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU whose reading and fast mean are both beyond what peers allow."""
        view = state.view(EntityKind.GPU)
        heat = _heat(state, view, fleet)
        with np.errstate(invalid="ignore"):
            beyond = (heat.now > heat.allowed) & (heat.mean > heat.allowed)
            near = heat.now >= heat.limit - NEAR_LIMIT_C
            lasting = view.coverage_s(METRIC) >= LEAST_COVERAGE_S
        mask = heat.readable & beyond & near & lasting
        return [self._signal(ref, row, heat, now) for row, ref in hits(view, mask)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that are near their peers again."""
        view = state.view(EntityKind.GPU)
        heat = _heat(state, view, fleet)
        with np.errstate(invalid="ignore"):
            near = heat.mean - heat.usual < CLEAR_SHARE * (heat.allowed - heat.usual)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            near & heat.readable,
            self.speaks_for,
            now,
            lambda row: f"{heat.now[row]:.0f} C, its peers {heat.usual[row]:.0f} C",
        )

    def _signal(self, ref: EntityRef, row: int, heat: _Heat, now: float) -> Signal:
        value, usual = float(heat.now[row]), float(heat.usual[row])
        limit, allowed = float(heat.limit[row]), float(heat.allowed[row])
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.THERMAL,
            score=_SCORE_AT_LIMIT if value >= limit else _SCORE,
            severity=Severity.ERROR if value >= limit else Severity.WARNING,
            sentence=(
                f"GPU {ref.key} is at {value:.0f} C; peers of its model and load are at "
                f"{usual:.0f} C, {allowed:.0f} C would be odd, slowdown begins at {limit:.0f} C"
            ),
            numbers={METRIC: value, "peers_celsius": usual},
            thresholds={METRIC: allowed, LIMIT: limit},
            plane=Plane.PEERS,
            action=RecommendedAction.INVESTIGATE,
            max_rung=Rung.EXCLUDE,
        )


def _heat(state: FleetReading, view: KindView, fleet: FleetContext) -> _Heat:
    readable = fresh(state, view, METRIC, fleet)
    now = view.last(METRIC)
    compared = np.where(readable, now, np.nan)
    groups = _groups(view, fleet)
    usual = group_median(compared, groups, FEWEST_PEERS)
    spread = _MAD_TO_SIGMA * group_median(np.abs(compared - usual), groups, FEWEST_PEERS)
    allowed = usual + np.maximum(LEAST_EXCESS_C, MOST_SIGMA * np.maximum(spread, LEAST_SPREAD_C))
    limit = view.last(LIMIT)
    return _Heat(
        now=now,
        mean=view.ewma_fast(METRIC),
        usual=usual,
        allowed=allowed,
        limit=np.where(np.isnan(limit), LIMIT_WHERE_UNKNOWN_C, limit),
        readable=readable,
    )


def _groups(view: KindView, fleet: FleetContext) -> AnyArray:
    """Model and load band (idle, light, busy) as one number."""
    load = view.ewma_fast(LOAD)
    with np.errstate(invalid="ignore"):
        band = (load > _IDLE).astype(np.int64) + (load > _BUSY)
    models = model_codes(view, fleet)
    known = (models != UNKNOWN_GROUP) & ~np.isnan(load)
    return np.where(known, models * 3 + band, UNKNOWN_GROUP)
