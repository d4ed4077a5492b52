"""Quality and delay against the sampling interval."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_models.evaluation.live import SimulatedHistory
from gpuwarden_models.evaluation.playing import play
from gpuwarden_models.evaluation.sets import Sizes
from gpuwarden_models.evaluation.traces import Trace
from gpuwarden_verdict.fusion import FusionModels

_SEED_OF_CURVE = 900


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The whole system at one interval; faults are the same at all.

    Attributes:
        interval_s: Time between readings.
        system: What it flagged and excluded.
        parameters_sha256: Of the simulator.
    """

    interval_s: float
    system: Trace
    parameters_sha256: str


def curve_point(sizes: Sizes, seed: int, interval_s: float, models: FusionModels) -> CurvePoint:
    """Play the same fleet and faults at one interval.

    Args:
        sizes: Its nodes and hours.
        seed: Of the evaluation.
        interval_s: Time between readings.
        models: The learnt scores.
    """
    fleet = SimulatedHistory(
        sizes.curve_nodes, sizes.curve_hours, 1000 * seed + _SEED_OF_CURVE, interval_s
    )
    return CurvePoint(interval_s, play(fleet, models).system, fleet.parameters_hash)
