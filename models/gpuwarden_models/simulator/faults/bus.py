"""Faults of the PCIe link of a GPU."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import due
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

_FULL_LANES = 16.0
_LINES_PER_HOUR = 20.0  # the kernel limits how many AER lines it writes (assumed)


def gpu_off_bus(active: ActiveFault, world: World, dt: float) -> None:
    """XID 79 and 154; the GPU is gone, and two probes later its agent says so."""
    lose_gpu(active, world)


def lose_gpu(active: ActiveFault, world: World) -> None:
    """The GPU leaves the bus, its node's job fails; called once a step from then on."""
    gpu, part = active.row, world.topology.gpus[active.row]
    if active.once("lost"):
        world.plant.lost[gpu] = True
        for number, message in enumerate(kernel_lines.fallen_off(part.pci_bus_id)):
            world.gpu_line(gpu, message, 0.05 * number)
        job = world.board.job_on(part.node)
        if job is not None:
            world.board.stop(job, world.now, JobState.NODE_FAIL)
    elif active.once("noticed"):
        world.other_event(part.node, EventKind.GPU_LOST, EntityKind.GPU, part.gpu_uuid, probes=2)
        world.inventory_event(part.node)


def pcie_degradation(active: ActiveFault, world: World, dt: float) -> None:
    """Replays and correctable errors grow, the link trains down, and some GPUs are lost at last."""
    gpu, part = active.row, world.topology.gpus[active.row]
    growth = active.growth(Shape.LINEAR)
    world.effects.replays_per_hour[gpu] += active.number("replays_per_hour") * growth
    world.effects.aer_correctable_per_hour[gpu] += active.number("correctable_per_hour") * growth
    if due(world, _LINES_PER_HOUR * min(growth, 2.0), dt):
        world.gpu_line(gpu, kernel_lines.correctable(part.pci_bus_id))
    if active.needed:
        if active.once("ends"):
            active.said.add("lasts" if world.rng.random() >= active.number("lost_share") else "")
        world.effects.lanes[gpu] = min(active.number("lanes"), _FULL_LANES)
    if active.progress >= 1.0 and "lasts" not in active.said:
        lose_gpu(active, world)


def pcie_fatal(active: ActiveFault, world: World, dt: float) -> None:
    """A fatal AER error takes the GPU off the bus."""
    gpu, part = active.row, world.topology.gpus[active.row]
    if active.once("fatal"):
        world.plant["gpu_aer_fatal_total"][gpu] += 1
        for message in kernel_lines.bus_fatal(part.pci_bus_id):
            world.gpu_line(gpu, message)
    lose_gpu(active, world)
