"""Faults of NVLinks and of the switch between them."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import gpus_of, hang_job, moments, reaches
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.metrics import EntityKind


def nvlink_degradation(active: ActiveFault, world: World, dt: float) -> None:
    """Errors and recoveries grow, then the link fails: 74, again and again, also of peers."""
    growth, gpu = active.growth(Shape.LATE), active.row
    world.effects.nvlink_errors_per_hour[gpu] += active.number("errors_per_hour") * growth
    recoveries = active.number("recoveries_per_hour") * growth
    world.effects.nvlink_recoveries_per_hour[gpu] += recoveries
    if active.progress >= 1.0:
        world.effects.links_lost[gpu] += active.number("links")
        _link_fault(active, world, dt)


def nvlink_down(active: ActiveFault, world: World, dt: float) -> None:
    """Links are inactive at once, with XID 74."""
    world.effects.links_lost[active.row] += active.number("links")
    _link_fault(active, world, dt)


def _link_fault(active: ActiveFault, world: World, dt: float) -> None:
    first, gpu = active.once("fault"), active.row
    if first:
        hang_job(active, world, world.topology.gpus[gpu].node)
    for delay in [0.0] if first else moments(world, active.fault.storm_per_hour, dt):
        for number, row in enumerate((gpu, *reaches(active, world, gpu))):
            _say(world, row, delay + 0.02 * number)


def _say(world: World, row: int, delay_s: float) -> None:
    if world.plant.lost[row]:
        return
    part, links = world.topology.gpus[row], world.parameters.gpu.nvlinks
    message = kernel_lines.link_fault(part.pci_bus_id, int(world.rng.integers(0, links)))
    world.gpu_line(row, message, delay_s)
    world.plant["gpu_nvlink_errors_total"][row] += 1 + world.rng.poisson(3.0)


def nvswitch_fatal(active: ActiveFault, world: World, dt: float) -> None:
    """A fatal SXid; links of all GPUs on the node are inactive, each says 74."""
    node, own = active.row, gpus_of(world, active.row)
    world.effects.links_lost[own] += 2.0
    if not active.once("fault"):
        return
    world.kernel_line(node, kernel_lines.switch_fault(35), EntityKind.NODE, "")
    for row in range(own.start, own.stop):
        part = world.topology.gpus[row]
        if not world.plant.lost[row]:
            delay = float(world.rng.uniform(0.05, 2.0))
            world.gpu_line(row, kernel_lines.link_fault(part.pci_bus_id, 4), delay)
    hang_job(active, world, node)


def benign_link_noise(active: ActiveFault, world: World, dt: float) -> None:
    """Link errors and replays come and go."""
    share = min(active.elapsed_s / max(active.fault.duration_s, 1.0), 1.0)
    hump, gpu = 4.0 * share * (1.0 - share) * active.fault.severity, active.row
    world.effects.nvlink_errors_per_hour[gpu] += active.number("errors_per_hour") * hump
    world.effects.replays_per_hour[gpu] += active.number("replays_per_hour") * hump
