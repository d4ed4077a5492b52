"""Faults of the driver's firmware, and programs that wait for ever."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import (
    address,
    due,
    end_job,
    hang_job,
    idle,
    moments,
    pid,
    preempted,
)
from gpuwarden_models.simulator.world import World

_PER_HOUR = 3600.0


def gsp_timeout(active: ActiveFault, world: World, dt: float) -> None:
    """Probes grow slow, then XID 119, now and then 120; the GPU is mostly of no use after it."""
    gpu, part = active.row, world.topology.gpus[active.row]
    slower = active.number("probe_factor") * (0.1 if active.progress < 1.0 else 1.0)
    if active.fault.full_after_s > 0 or active.progress >= 1.0:
        world.effects.probe_factor[gpu] = 1.0 + slower * min(active.growth(), 1.0)
    if active.progress < 1.0:
        return
    if active.once("first"):
        if world.rng.random() >= active.number("unusable_share"):
            active.said.add("usable")
        _say_gsp(active, world)
        hang_job(active, world, part.node)
    elif active.elapsed_s < active.fault.full_after_s + active.number("again_until_s"):
        for delay in moments(world, _PER_HOUR / active.number("again_s"), dt):
            _say_gsp(active, world, delay)
    if "usable" not in active.said:
        idle(world, gpu)


def _say_gsp(active: ActiveFault, world: World, delay_s: float = 0.0) -> None:
    gpu, part = active.row, world.topology.gpus[active.row]
    if world.rng.random() < active.number("firmware_share"):
        world.gpu_line(gpu, kernel_lines.gsp_error(part.pci_bus_id, pid(world)), delay_s)
        return
    message = kernel_lines.gsp_timeout(part.pci_bus_id, pid(world), part.index)
    world.gpu_line(gpu, message, delay_s)


def pmu_failure(active: ActiveFault, world: World, dt: float) -> None:
    """XID 122; within a moment mostly an MMU fault (31), which ends the program."""
    gpu, part = active.row, world.topology.gpus[active.row]
    again = due(world, _PER_HOUR / active.number("again_s"), dt)
    if not (active.once("first") or again):
        return
    world.gpu_line(gpu, kernel_lines.pmu_read_failed(part.pci_bus_id))
    if world.rng.random() < active.number("fault_share"):
        delay = float(world.rng.uniform(0.2, 1.0)) * active.number("delay_s")
        fault = kernel_lines.memory_fault(part.pci_bus_id, pid(world), address(world))
        world.gpu_line(gpu, fault, delay)
        end_job(active, world, part.node)


def pmu_halt(active: ActiveFault, world: World, dt: float) -> None:
    """XID 62 between the 45s of the program that it ends; clocks fall to their floor."""
    gpu, part = active.row, world.topology.gpus[active.row]
    if active.once("first"):
        world.gpu_line(gpu, kernel_lines.pmu_halted(part.pci_bus_id), 0.3)
        if active.fault.echo:
            preempted(world, gpu, 0.1)
            preempted(world, gpu, 0.5)
        end_job(active, world, part.node)
    world.effects.clock_share[gpu] = 0.2
    world.effects.watts_share[gpu] = 0.3


def hung_kernel(active: ActiveFault, world: World, dt: float) -> None:
    """Its program never ends: full utilisation, little power; every job that comes here hangs."""
    gpu, part = active.row, world.topology.gpus[active.row]
    job = world.board.job_on(part.node)
    if job is not None and world.now < job.hangs_from and active.once(f"hang {job.job_id}"):
        hang_job(active, world, part.node)
    if job is not None:
        world.effects.watts_share[gpu] = 0.5
        world.effects.memory_share[gpu] = 0.0
        world.effects.probe_factor[gpu] = 4.0
    late = active.elapsed_s >= active.number("coded_after_s")
    if late and active.once("code") and world.rng.random() < active.number("coded_share"):
        world.gpu_line(gpu, kernel_lines.switch_timeout(part.pci_bus_id, pid(world)))
