"""Faults of the machine around the GPUs."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import due, end_job, hang_job, pid
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.metrics import EntityKind

_MOST = 0.95
_HUNG_PER_HOUR = 6.0  # assumed
_LINES_SHARE = 0.1  # assumed: of corrected errors, that the kernel writes a line about
_MOST_LINES_PER_HOUR = 12.0  # assumed: the kernel's rate limit
_PANIC_S = 240.0  # assumed: from an uncorrected error to the node's return


def host_stall(active: ActiveFault, world: World, dt: float) -> None:
    """Pages go out, interrupts and runnable programs collapse, GPUs wait; OOM at the end."""
    node, growth = active.row, min(active.growth(), 1.3)
    world.effects.host_collapse[node] = min(active.number("collapse") * growth, _MOST)
    world.effects.pages_out[node] += active.number("pages_out_bytes_per_second") * growth
    _gpus_wait(world, node, growth)
    if not active.needed:
        return
    if active.once("oom"):
        message = kernel_lines.out_of_memory(pid(world))
        world.kernel_line(node, message, EntityKind.NODE, "")
        if active.fault.echo:
            end_job(active, world, node)
    if due(world, _HUNG_PER_HOUR * growth, dt):
        _hung(world, node)


def cpu_lockup(active: ActiveFault, world: World, dt: float) -> None:
    """Processors lock up at once; the job hangs."""
    node = active.row
    world.effects.host_collapse[node] = active.number("collapse")
    _gpus_wait(world, node, 1.0)
    first = active.once("first")
    if first or due(world, active.number("lines_per_hour"), dt):
        processor = int(world.rng.integers(0, 128))
        message = kernel_lines.soft_lockup(processor, pid(world))
        world.kernel_line(node, message, EntityKind.NODE, "")
    if first:
        hang_job(active, world, node)
    elif due(world, _HUNG_PER_HOUR, dt):
        _hung(world, node)


def host_memory_wear(active: ActiveFault, world: World, dt: float) -> None:
    """Corrected errors grow until an uncorrected one; the node panics and comes back as it was."""
    node = active.row
    rate = active.number("corrected_per_hour") * active.growth()
    world.effects.memory_corrected_per_hour[node] += rate
    if due(world, min(_LINES_SHARE * rate, _MOST_LINES_PER_HOUR), dt):
        _memory_line(world, node, kernel_lines.memory_corrected(int(world.rng.integers(0, 4))))
    if active.progress >= 1.0 and active.once("uncorrected"):
        _memory_line(world, node, kernel_lines.memory_uncorrected(0))
        world.machines.node["node_memory_uncorrected_errors_total"][node] += 1
        job = world.board.job_on(node)
        if job is not None:
            world.board.stop(job, world.now, JobState.NODE_FAIL)
        world.send_away(node, _PANIC_S)


def host_memory_noise(active: ActiveFault, world: World, dt: float) -> None:
    """A few corrected errors an hour, for ever."""
    node = active.row
    rate = active.number("corrected_per_hour") * active.fault.severity
    world.effects.memory_corrected_per_hour[node] += rate
    if due(world, _LINES_SHARE * rate, dt):
        _memory_line(world, node, kernel_lines.memory_corrected(1))


def _memory_line(world: World, node: int, message: str) -> None:
    world.kernel_line(node, message, EntityKind.NODE, "")


def _hung(world: World, node: int) -> None:
    world.machines.node["node_hung_tasks_total"][node] += 1
    world.kernel_line(node, kernel_lines.hung_task(pid(world)), EntityKind.NODE, "")


def _gpus_wait(world: World, node: int, growth: float) -> None:
    """GPUs get no work as fast as they could take it."""
    per_node = world.topology.gpus_per_node
    own = slice(node * per_node, (node + 1) * per_node)
    world.load.gpu[own] *= 1.0 - min(0.6 * growth, 0.9)
