"""When a fault first changes anything that is read or logged: what "leaves a trace" means.

Nobody is asked what was noticed. A fault may be there and change nothing: a GPU that would be slow
under load and has none, a part whose errors would come once a week.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.world import World

COUNTED = 1.0
"""A rate shows once so many counts beyond the usual ones are to be expected."""

_USUAL_LEAST = 0.01
_LEAST: Mapping[str, float] = MappingProxyType(
    {
        "cooling": 1.0,  # of what it makes of the present draw, in degrees
        "inlet_celsius": 1.0,  # temperatures are read in whole degrees
        "watts_noise": 5.0,
        "power_limit_watts": 5.0,
        "pages_out": 1e6,
    }
)
"""What is smaller is lost in how a reading is taken; the others are shares, links and lanes."""

_UNDER_LOAD = frozenset({"watts_share", "memory_share", "watts_noise"})
_SOME_LOAD = 0.02
_RATE = "_per_hour"

_Floats = NDArray[np.float64]
_Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """What there was before a fault acted in a step.

    Attributes:
        effects: By name.
        load: Share of full load, shape (GPUs,).
        events: How many wait to be told.
        gpus: Those that can be read, shape (GPUs,).
        nodes: Those that can be read, shape (nodes,).
    """

    effects: Mapping[str, _Floats]
    load: _Floats
    events: int
    gpus: _Flags
    nodes: _Flags


def before(world: World) -> Before:
    """Remember it."""
    nodes = ~world.effects.down
    return Before(
        effects={name: np.array(value, np.float64) for name, value in vars(world.effects).items()},
        load=world.load.gpu.copy(),
        events=world.events_waiting,
        gpus=~world.plant.lost & nodes[world.topology.gpu_node],
        nodes=nodes,
    )


def shows(active: ActiveFault, world: World, was: Before, dt: float) -> bool:
    """Whether a fault can be seen by the end of a step in which it acted.

    Args:
        active: The fault; it keeps how many counts were to be expected so far.
        world: After it acted.
        was: Before it acted.
        dt: Length of the step, seconds.
    """
    moved = {
        name: largest
        for name, old in was.effects.items()
        if (largest := _moved(name, old, world, was)) > 0
    }
    active.counts_expected += sum(
        rise * dt / 3600.0 for name, rise in moved.items() if name.endswith(_RATE)
    )
    works_less = (np.abs(world.load.gpu - was.load) >= _USUAL_LEAST) & was.gpus
    return (
        world.events_waiting > was.events
        or bool(works_less.any())
        or active.counts_expected >= COUNTED
        or any(
            largest >= _LEAST.get(name, _USUAL_LEAST)
            for name, largest in moved.items()
            if not name.endswith(_RATE)
        )
    )


def _moved(name: str, old: _Floats, world: World, was: Before) -> float:
    """How far an effect was moved where it can be read."""
    change = np.abs(np.array(getattr(world.effects, name), np.float64) - old)
    if not change.any():
        return 0.0
    if name == "cooling":
        resistance = world.parameters.gpu.thermal_resistance_normal[0]
        change = change * resistance * world.plant["gpu_power_watts"]
    if change.shape == was.load.shape:
        read = was.gpus & (was.load > _SOME_LOAD) if name in _UNDER_LOAD else was.gpus
        return float(np.where(read, change, 0.0).max())
    if change.ndim == 0:
        return float(change)
    return float(np.where(was.nodes, change, 0.0).max())
