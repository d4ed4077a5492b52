"""What a fault makes others say: its own channels, its job, and the job's other GPUs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.world import World

_MOST_A_STEP = 60
_PEERS_THAT_SAY_SO = 0.5  # assumed: of the job's other GPUs on the node, that their program ended


def address(world: World) -> int:
    """An address that a fault may name."""
    return int(world.rng.integers(0x1000_0000, 0xF_0000_0000)) & ~0xF


def pid(world: World) -> int:
    """A program that a fault may name."""
    return int(world.rng.integers(20_000, 3_000_000))


def node_of(active: ActiveFault, world: World) -> int:
    """Node of a fault on a GPU or NIC."""
    return world.topology.gpus[active.row].node


def gpus_of(world: World, node: int) -> slice:
    """Rows of a node's GPUs."""
    per_node = world.topology.gpus_per_node
    return slice(node * per_node, (node + 1) * per_node)


def peers_of(world: World, gpu: int) -> NDArray[np.int64]:
    """Rows of the other GPUs on a GPU's node."""
    own = gpus_of(world, world.topology.gpus[gpu].node)
    rows = np.arange(own.start, own.stop)
    peers: NDArray[np.int64] = rows[rows != gpu]
    return peers


def due(world: World, per_hour: float, dt: float) -> bool:
    """Whether something that comes so often comes in this step."""
    return per_hour > 0 and bool(world.rng.random() < per_hour * dt / 3600.0)


def moments(world: World, per_hour: float, dt: float) -> list[float]:
    """When in this step it comes that comes so often: seconds before its end, negative."""
    count = min(int(world.rng.poisson(per_hour * dt / 3600.0)), _MOST_A_STEP)
    return sorted(float(at) for at in world.rng.uniform(-dt, 0.0, count))


def end_job(active: ActiveFault, world: World, node: int) -> None:
    """The fault ends the programs on its node at once; the job fails with them."""
    job = world.board.job_on(node)
    if job is None:
        return
    if active.fault.echo:
        own = gpus_of(world, node)
        for row in range(own.start, own.stop):
            if row == active.row or world.rng.random() < _PEERS_THAT_SAY_SO:
                preempted(world, row, float(world.rng.uniform(0.2, 8.0)))
    world.board.stop(job, world.now, JobState.FAILED)


def hang_job(active: ActiveFault, world: World, node: int) -> None:
    """The job does not notice at once: its ranks wait in a collective until it times out."""
    job = world.board.job_on(node)
    if job is None:
        return
    after = float(world.rng.uniform(*world.parameters.jobs.collective_timeout_s))
    world.board.hang(job, world.now, world.now + after, JobState.FAILED)


def preempted(world: World, gpu: int, delay_s: float) -> None:
    """A GPU's channels are removed, unless it is gone."""
    if not world.plant.lost[gpu]:
        part = world.topology.gpus[gpu]
        world.gpu_line(gpu, kernel_lines.preempted(part.pci_bus_id, pid(world)), delay_s)


def idle(world: World, gpu: int) -> None:
    """A GPU does nothing in this step, whatever its job asks."""
    world.load.gpu[gpu] = 0.0
    world.load.spinning[gpu] = False


def reaches(active: ActiveFault, world: World, gpu: int) -> list[int]:
    """Peers that an NVLink fault reaches: mostly none, now and then one, seldom many."""
    peers = peers_of(world, gpu)
    drawn = world.rng.random()
    if drawn >= active.number("reach_share") or peers.size == 0:
        return []
    many = drawn < active.number("many_share")
    count = min(int(world.rng.integers(3, 8)) if many else 1, peers.size)
    return [int(row) for row in world.rng.choice(peers, count, replace=False)]
