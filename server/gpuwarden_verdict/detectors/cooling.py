"""A GPU whose cooling has failed: at full draw it would be at its limit, its peers would not."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.detectors.drift import CELSIUS_PER_WATT
from gpuwarden_verdict.detectors.peer_deviation import (
    LIMIT_WHERE_UNKNOWN_C,
    SLOWDOWN_AT,
    TEMPERATURE,
    job_phase,
    model_phase,
    usual_among,
)
from gpuwarden_verdict.detectors.scene import FEWEST_IN_JOB, Scene
from gpuwarden_verdict.detectors.statistic import Measured, StatisticDetector
from gpuwarden_verdict.entities import FaultClass, Rung, Severity
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

POWER, POWER_LIMIT = "gpu_power_watts", "gpu_power_limit_watts"
MEMORY_TEMPERATURE = "gpu_memory_temperature_celsius"
NEAR_C = 6.0
"""Within so much of its slowdown a GPU has no room left for a warm day (assumed)."""
LEAST_EXCESS_C = 12.0
"""Above what sound GPUs of one node differ by under equal load (public runs of H100: 4 to 12 C)."""
LEAST_OF_MEMORY_C = 6.0
"""The other sensor must say so too, where it is read: half as much."""

_BY_PHASE = (job_phase, model_phase)


def measure_cooling(scene: Scene) -> Measured:
    """Degrees above NEAR_C below its slowdown at which a GPU would be at its full power limit.

    What its present draw explains of its temperature is taken out, and its limit's put in: a cooler
    that fails is seen at half load too, and a GPU that is hot because it works is not accused. NaN
    where temperature, draw or limit are not read.
    """
    heat = scene.mean(TEMPERATURE) - np.float32(CELSIUS_PER_WATT) * scene.mean(POWER)
    usual, _, crowd = usual_among(_BY_PHASE, scene, heat)
    excess = np.fmin(heat - usual, heat - _of_board(scene, heat))
    at_full = heat + np.float32(CELSIUS_PER_WATT) * scene.view.last(POWER_LIMIT)
    limit = scene.view.last(SLOWDOWN_AT)
    limit = np.where(np.isnan(limit), np.float32(LIMIT_WHERE_UNKNOWN_C), limit)
    memory = scene.mean(MEMORY_TEMPERATURE)
    with np.errstate(invalid="ignore"):
        alone = (heat - usual > LEAST_EXCESS_C) & (excess > LEAST_EXCESS_C)
        if alone.any():
            cool = memory - usual_among(_BY_PHASE, scene, memory)[0] < LEAST_OF_MEMORY_C
            alone &= ~cool
    value = (at_full - (limit - np.float32(NEAR_C))).astype(np.float32)
    shown = {"at_full": at_full, "limit_c": limit, "excess": excess}
    return Measured(value, shown, crowd, alone)


def _of_board(scene: Scene, heat: F32) -> F32:
    board = scene.lasting_grouping("board", FEWEST_IN_JOB, lambda: scene.view.node_rows)
    return board.per_entity(board.middle(heat).median)


COOLING_LOST = StatisticDetector(
    name="cooling_lost",
    version=1,
    kind=EntityKind.GPU,
    what="a GPU whose own cooling fails: at full draw it would reach its slowdown",
    needs=(TEMPERATURE,),
    measure=measure_cooling,
    limits=LimitRule("celsius", 1.0, 1.0, 1.0, persist_s=600.0, budget=None),
    fault_class=FaultClass.THERMAL,
    # Peers and board decide whom it accuses. A warm slot of a sound chassis looks alike until the
    # hardware slows the GPU down: that is counted by itself, may exclude, and this adds to it.
    plane=Plane.PEERS,
    score=0.72,
    severity=Severity.ERROR,
    says="GPU {entity} would be at {at_full:.0f} C at full draw and slows down at {limit_c:.0f} C:"
    " it is {excess:.0f} C hotter for what it draws than its peers and its board's others: its own"
    " cooling fails",
    clear_says="at full draw it would be at {at_full:.0f} C",
    max_rung=Rung.SUSPECT,
)
