"""Draw and heat of a fleet without faults."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame
from gpuwarden_models.simulator.parameters import GpuModel, parameters_for
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_wire.metrics import EntityKind

Floats: TypeAlias = NDArray[np.float64]

_INTERVAL_S = 60.0
_RUN = 120  # readings: two hours, as long as a published run
_EVERY = 5  # GPUs whose correlation is taken
_ENOUGH = 30
_BUSY, _IDLE = 0.9, 0.01


def levels(model: GpuModel, nodes: int, hours: float, seed: int) -> dict[str, float]:
    """Figures of one model of GPU; "busy" is at over 0.9 utilisation, "idle" at none.

    Args:
        model: Which.
        nodes: Size of the fleet, 8 GPUs a node.
        hours: Length.
        seed: Equal arguments give equal figures.
    """
    parameters = parameters_for(model)
    setting = Setting(nodes, 8, seed=seed, interval_s=_INTERVAL_S, parameters=parameters)
    frames = Simulation(setting).frames(round(hours * 3600.0 / _INTERVAL_S))
    kept = [_readings(frame) for frame in frames]
    watts, heat, load = (np.array([one[column] for one in kept]) for column in range(3))
    busy, idle = load > _BUSY, load < _IDLE
    return {
        "busy_power_watts_median": float(np.median(watts[busy])),
        "busy_power_watts_p95": float(np.percentile(watts[busy], 95)),
        "busy_celsius_median": float(np.median(heat[busy])),
        "busy_celsius_p95": float(np.percentile(heat[busy], 95)),
        "idle_power_watts_mean": float(watts[idle].mean()),
        "idle_power_watts_median": float(np.median(watts[idle])),
        "idle_celsius_mean": float(heat[idle].mean()),
        "power_watts_p95": float(np.percentile(watts, 95)),
        "celsius_p95": float(np.percentile(heat, 95)),
        "power_temperature_correlation": _correlation(watts, heat),
        "node_spread_celsius": _spread(heat, busy),
    }


def _readings(frame: Frame) -> tuple[Floats, Floats, Floats]:
    gpus = next(table for table in frame.tables if table.kind is EntityKind.GPU)
    columns = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio")
    power, heat, load = (gpus.column(name).copy() for name in columns)
    return power, heat, load


def _correlation(watts: Floats, heat: Floats) -> float:
    """Median over GPUs and stretches as long as a run."""
    found = []
    for first in range(0, watts.shape[0] - _RUN + 1, _RUN):
        for gpu in range(0, watts.shape[1], _EVERY):
            own = watts[first : first + _RUN, gpu], heat[first : first + _RUN, gpu]
            if min(own[0].std(), own[1].std()) > 0:
                found.append(float(np.corrcoef(*own)[0, 1]))
    return float(np.median(found))


def _spread(heat: Floats, busy: NDArray[np.bool_]) -> float:
    """Hottest less coolest mean of a node's GPUs while all are busy; the median over nodes."""
    spreads = []
    for node in range(heat.shape[1] // 8):
        own = slice(8 * node, 8 * node + 8)
        together = busy[:, own].all(axis=1)
        if together.sum() >= _ENOUGH:
            spreads.append(float(np.ptp(heat[together][:, own].mean(axis=0))))
    return float(np.median(spreads))
