"""Heat that does not get away."""

from __future__ import annotations

from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.bus import lose_gpu
from gpuwarden_models.simulator.faults.echoes import gpus_of
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.world import World

_SHUTS_DOWN_AFTER_S = 600.0  # assumed: heat that the slowdown does not hold


def slow_overheating(active: ActiveFault, world: World, dt: float) -> None:
    """Contact to the heat sink ages: the GPU creeps above its own past."""
    # At full effect and 650 W: 0.056 C/W x 650 W x 0.5 = 18 C above the sound GPU. Twice as severe
    # slows it down.
    world.effects.cooling[active.row] += active.number("cooling") * active.growth(Shape.LINEAR)


def cooling_failure(active: ActiveFault, world: World, dt: float) -> None:
    """A pump or fan stops: slowdown within minutes, and now and then the board switches off."""
    world.effects.cooling[active.row] += active.number("cooling") * active.fault.severity
    if active.once("ends") and world.rng.random() < active.number("shutdown_share"):
        active.said.add("shuts down")
    hot = world.plant["gpu_temperature_celsius"][active.row]
    limit = world.parameters.gpu.max_operating_celsius
    over = active.elapsed_s > _SHUTS_DOWN_AFTER_S and hot >= limit
    if "shuts down" in active.said and (over or "lost" in active.said):
        lose_gpu(active, world)


def airflow_loss(active: ActiveFault, world: World, dt: float) -> None:
    """All GPUs of one node grow warmer, the rest of the rack does not."""
    own, growth = gpus_of(world, active.row), active.growth(Shape.LINEAR)
    world.effects.inlet_celsius[own] += active.number("inlet_celsius") * growth
    world.effects.cooling[own] += active.number("cooling") * growth
