"""GPUs that are slow and say nothing: the whole job waits for them."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.world import World

_WATTS_BY_CLOCK = 1.5  # assumed: draw falls faster than the clock
_MOST = 0.8


def straggler_clock(active: ActiveFault, world: World, dt: float) -> None:
    """The clock stays low, and no reason tells why."""
    gpu = active.row
    slower = min(active.number("slower") * active.growth(Shape.LINEAR), _MOST)
    world.effects.clock_share[gpu] *= 1.0 - slower
    world.effects.watts_share[gpu] *= (1.0 - slower) ** _WATTS_BY_CLOCK
    _peers_wait(active, world, slower)


def straggler_memory(active: ActiveFault, world: World, dt: float) -> None:
    """Memory moves less than that of the peers; the clock is as theirs."""
    gpu, growth = active.row, min(active.growth(Shape.LINEAR), 1.5)
    slower = min(active.number("slower") * growth, _MOST)
    world.effects.memory_share[gpu] *= 1.0 - slower
    world.effects.watts_share[gpu] *= 1.0 - (1.0 - active.number("watts_share")) * growth
    _peers_wait(active, world, slower)


def _peers_wait(active: ActiveFault, world: World, slower: float) -> None:
    """The other GPUs of the job draw less while they wait, at the same utilisation."""
    job = world.board.job_on(world.topology.gpus[active.row].node)
    if job is None:
        return
    per_node = world.topology.gpus_per_node
    rows = (job.nodes[:, None] * per_node + np.arange(per_node)).ravel()
    rows = rows[rows != active.row]
    world.effects.watts_share[rows] *= 1.0 - active.number("waits") * slower
