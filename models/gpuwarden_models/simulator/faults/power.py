"""Power that does not arrive as it should."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.bus import lose_gpu
from gpuwarden_models.simulator.faults.echoes import gpus_of
from gpuwarden_models.simulator.world import World

_MOST = 0.9


def power_brake(active: ActiveFault, world: World, dt: float) -> None:
    """A supply of the node failed: under load the hardware brakes all its GPUs."""
    own = gpus_of(world, active.row)
    if world.rng.random() < active.number("share_of_time"):
        brake = min(active.number("brake") * active.fault.severity, _MOST)
        world.effects.brake[own] = np.where(world.load.gpu[own] > 0.5, brake, 0.0)


def vrm_wear(active: ActiveFault, world: World, dt: float) -> None:
    """The draw of one GPU grows unsteady, brakes come more often, and at last it is gone."""
    gpu, growth = active.row, active.growth()
    if active.progress >= 1.0:
        lose_gpu(active, world)
        return
    world.effects.watts_noise[gpu] += active.number("watts_noise") * growth
    braked = world.rng.random() < active.number("share_of_time") * growth
    if braked and world.load.gpu[gpu] > 0.5:
        world.effects.brake[gpu] = min(active.number("brake") * active.fault.severity, _MOST)
