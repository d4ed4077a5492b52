"""What looks like a fault of one entity and is none: programs, operators, exporters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import address, gpus_of, pid
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.events import EventKind

_DIP_S = 120.0  # assumed: period of a job that waits for its input


def application_burst(active: ActiveFault, world: World, dt: float) -> None:
    """A program faults on all GPUs of its job: 31 and 43 everywhere within a second."""
    if not active.once("burst"):
        return
    job = world.board.job_on(active.row)
    nodes: NDArray[np.int64] = np.array([active.row]) if job is None else job.nodes
    per_node = world.topology.gpus_per_node
    for node in nodes.tolist():
        for gpu in range(node * per_node, (node + 1) * per_node):
            part, delay = world.topology.gpus[gpu], float(world.rng.uniform(0.0, 0.8))
            number = pid(world)
            fault = kernel_lines.memory_fault(part.pci_bus_id, number, address(world))
            world.gpu_line(gpu, fault, delay)
            world.gpu_line(gpu, kernel_lines.channel_stopped(part.pci_bus_id, number), delay + 0.1)
    if job is not None:
        active.job_id = job.job_id
        world.board.stop(job, world.now, JobState.FAILED)


def application_fault(active: ActiveFault, world: World, dt: float) -> None:
    """A program faults on one GPU, 31 or 13, and its user starts it again."""
    first = active.once("first")
    if first:
        drawn = world.rng.random(2)
        active.said |= {"mmu"} if drawn[0] < active.number("mmu_share") else set()
        active.said |= {"again"} if drawn[1] < active.number("again_share") else set()
    late = "again" in active.said and active.elapsed_s > 0.5 * active.fault.duration_s
    if not (first or (late and active.once("second"))):
        return
    part = world.topology.gpus[active.row]
    number = pid(world)
    message = (
        kernel_lines.memory_fault(part.pci_bus_id, number, address(world))
        if "mmu" in active.said
        else kernel_lines.graphics_exception(part.pci_bus_id, number)
    )
    world.gpu_line(active.row, message)
    if world.rng.random() < active.number("reset_share"):
        world.gpu_line(active.row, kernel_lines.channel_stopped(part.pci_bus_id, number), 0.1)
    job = world.board.job_on(part.node)
    if job is not None:
        active.job_id = job.job_id
        world.board.stop(job, world.now, JobState.FAILED)


def hot_aisle(active: ActiveFault, world: World, dt: float) -> None:
    """All air of a rack grows warmer, or of all racks."""
    warmer = active.number("inlet_celsius") * active.progress * active.fault.severity
    if active.row < 0:
        world.effects.inlet_celsius += warmer
        return
    rack = world.topology.racks[active.row]
    for node in world.topology.nodes_in_rack(rack):
        world.effects.inlet_celsius[gpus_of(world, world.topology.node_row[node])] += warmer


def power_cap(active: ActiveFault, world: World, dt: float) -> None:
    """Somebody lowers the power limit of a node."""
    cut = active.number("watts") * active.progress * active.fault.severity
    limit = world.parameters.gpu.power_limit_watts - cut
    gpus = gpus_of(world, active.row)
    world.effects.power_limit_watts[gpus] = np.minimum(
        world.effects.power_limit_watts[gpus], max(limit, active.number("least_watts"))
    )


def missing_scrapes(active: ActiveFault, world: World, dt: float) -> None:
    """No reading of the node arrives."""
    world.effects.silent[active.row] = True


def driver_reload(active: ActiveFault, world: World, dt: float) -> None:
    """The driver is taken away and loaded anew: no job, no readings of GPUs for a while."""
    if active.once("away"):
        active.job_id = world.stop_jobs(np.array([active.row]), JobState.CANCELLED)
        world.board.drain(np.array([active.row]), world.now + active.fault.duration_s)
    world.effects.mute[gpus_of(world, active.row)] = True


def driver_loaded(active: ActiveFault, world: World) -> None:
    """It counts anew."""
    own = gpus_of(world, active.row)
    world.plant.restart(np.arange(own.start, own.stop))
    world.machines.node["node_driver_reloads_total"][active.row] += 1


def exporter_hang(active: ActiveFault, world: World, dt: float) -> None:
    """Readings of GPUs do not arrive, those of the node do."""
    world.effects.mute[gpus_of(world, active.row)] = True
    if active.once("away"):
        world.other_event(
            active.row, EventKind.COLLECTOR_TROUBLE, collector="nvml", reason="timeout"
        )


def exporter_answers(active: ActiveFault, world: World) -> None:
    """It answers again."""
    if not active.once("away"):
        world.other_event(active.row, EventKind.COLLECTOR_RECOVERED, collector="nvml")


def partial_readings(active: ActiveFault, world: World, dt: float) -> None:
    """Some of the host's readings are missing, the same ones all the time."""
    missing = world.effects.host_missing
    if active.drawn is None:
        active.drawn = world.rng.random((missing.shape[0],))
    missing[:, active.row] |= active.drawn < active.number("share")


def late_readings(active: ActiveFault, world: World, dt: float) -> None:
    """Readings are held back and arrive together."""
    world.effects.late[active.row] = True


def counter_reset(active: ActiveFault, world: World, dt: float) -> None:
    """What the driver counts of one GPU starts at 0, without a boot."""
    if active.once("reset"):
        world.plant.restart(np.array([active.row]))


def maintenance_drain(active: ActiveFault, world: World, dt: float) -> None:
    """Nothing runs on the node for a while."""
    if active.once("drained"):
        nodes = np.array([active.row])
        active.job_id = world.stop_jobs(nodes, JobState.CANCELLED)
        world.board.drain(nodes, world.now + active.fault.duration_s)


def input_wait(active: ActiveFault, world: World, dt: float) -> None:
    """The job waits for its input every other minute: all its GPUs dip together."""
    job = world.board.job_on(active.row)
    if job is None or (world.now % _DIP_S) > 0.5 * _DIP_S:
        return
    per_node = world.topology.gpus_per_node
    rows = (job.nodes[:, None] * per_node + np.arange(per_node)).ravel()
    world.load.gpu[rows] *= min(active.number("load") / active.fault.severity, 1.0)
