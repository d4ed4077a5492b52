"""Faults with one cause that many entities show, and what only looks like faults of many.

One function a fault, called once a step while it lasts; `END_COMMON` has what its end brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault, nic_place
from gpuwarden_models.simulator.fault_names import FaultName
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.topology import EXPORTS
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind


def _nodes(active: ActiveFault, world: World) -> NDArray[np.int64]:
    return world.topology.nodes_at(active.fault.entity)


def _gpus(nodes: NDArray[np.int64], world: World) -> NDArray[np.int64]:
    per_node = world.topology.gpus_per_node
    rows: NDArray[np.int64] = (nodes[:, None] * per_node + np.arange(per_node)).ravel()
    return rows


def _leaf_reboot(active: ActiveFault, world: World, dt: float) -> None:
    nodes = _nodes(active, world)
    rows = _gpus(nodes, world)
    world.effects.ports_down[rows] = True
    if active.once("down"):
        _links(rows, world, kernel_lines.port_down)
        active.job_id = world.stop_jobs(nodes, JobState.FAILED)
        world.board.hold(nodes, world.now + active.fault.duration_s)


def _leaf_back(active: ActiveFault, world: World) -> None:
    _links(_gpus(_nodes(active, world), world), world, kernel_lines.port_up)


def _links(rows: NDArray[np.int64], world: World, line: Callable[[str, str], str]) -> None:
    for row in rows.tolist():
        part = world.topology.gpus[row]
        delay = float(world.rng.uniform(0.0, 0.9))
        message = line(*nic_place(part.index))
        world.kernel_line(part.node, message, EntityKind.NIC, part.nic, delay)


def _mount_stall(active: ActiveFault, world: World, dt: float) -> None:
    share = world.parameters.storage.stalled_share / active.fault.severity
    world.effects.storage_share = 1.0 - active.progress * (1.0 - share)
    # What was asked in the step before, of what is left now.
    if world.mounts.pressure >= active.number("heard_from") and active.once("said"):
        _servers(active, world, kernel_lines.nfs_not_responding)


def _mount_back(active: ActiveFault, world: World) -> None:
    if not active.once("said"):
        _servers(active, world, kernel_lines.nfs_responding)


def _servers(active: ActiveFault, world: World, line: Callable[[str], str]) -> None:
    point = active.fault.entity.partition(":")[2]
    server = EXPORTS[point].partition(":")[0]
    for node in np.flatnonzero(world.load.busy > 0).tolist():
        delay = float(world.rng.uniform(0.0, 0.9))
        world.kernel_line(node, line(server), EntityKind.MOUNT, point, delay)


def _facility_outage(active: ActiveFault, world: World, dt: float) -> None:
    nodes = _nodes(active, world)
    if active.once("dark"):
        active.job_id = world.stop_jobs(nodes, JobState.NODE_FAIL)
        world.board.hold(nodes, world.now + active.fault.duration_s)
    world.effects.down[nodes] = True


def _planned_reboot(active: ActiveFault, world: World, dt: float) -> None:
    """Nodes go one after the other over the ramp, are away for a while, and train their links."""
    nodes = _nodes(active, world)
    away_s = _away_s(active, nodes, world)
    if active.once("drained"):
        active.job_id = world.stop_jobs(nodes, JobState.CANCELLED)
        world.board.hold(nodes, world.now + active.fault.duration_s)
    leaves_at = active.fault.full_after_s * np.arange(nodes.size) / nodes.size
    since = active.elapsed_s - leaves_at
    world.effects.down[nodes[(since >= 0) & (since < away_s)]] = True
    back = nodes[since >= away_s]
    fresh = [node for node in back.tolist() if active.once(f"back {node}")]
    world.reboot(np.array(fresh, dtype=np.int64))
    training = world.parameters.boots.training_s
    rows = _gpus(nodes[(since >= away_s) & (since < away_s + training)], world)
    world.effects.training[rows] = True
    world.effects.ports_down[rows] = True


def _away_s(active: ActiveFault, nodes: NDArray[np.int64], world: World) -> NDArray[np.float64]:
    if active.drawn is None:
        active.drawn = world.rng.uniform(*world.parameters.boots.node_s, nodes.size)
    return active.drawn


def _power_back(active: ActiveFault, world: World) -> None:
    world.reboot(_nodes(active, world))


def _reboot_done(active: ActiveFault, world: World) -> None:
    """Whoever is not back yet comes back now."""
    nodes = _nodes(active, world)
    late = [node for node in nodes.tolist() if active.once(f"back {node}")]
    world.reboot(np.array(late, dtype=np.int64))


def _driver_upgrade(active: ActiveFault, world: World, dt: float) -> None:
    """Node after node, over the ramp, the driver stops answering; its readings do not arrive."""
    nodes = _nodes(active, world)
    since = active.elapsed_s - active.fault.full_after_s * np.arange(nodes.size) / nodes.size
    away = since >= 0
    world.effects.driver_away_s[nodes[away]] = since[away]
    for node in nodes[away].tolist():
        if active.once(f"away {node}"):
            world.other_event(node, EventKind.COLLECTOR_TROUBLE, collector="nvml", reason="timeout")


def _driver_back(active: ActiveFault, world: World) -> None:
    nodes = _nodes(active, world)
    world.plant.restart(_gpus(nodes, world))  # another driver counts anew
    for node in nodes.tolist():
        if not active.once(f"away {node}"):
            world.other_event(node, EventKind.COLLECTOR_RECOVERED, collector="nvml")


def _crash_storm(active: ActiveFault, world: World, dt: float) -> None:
    """A program faults on one GPU; its ranks on all others are ended: XID 31 or 13, then 45."""
    if not active.once("crash"):
        return
    job = world.board.job_on(active.row)
    nodes: NDArray[np.int64] = np.array([active.row]) if job is None else job.nodes
    first = active.row * world.topology.gpus_per_node
    for row in _gpus(nodes, world).tolist():
        part = world.topology.gpus[row]
        pid = int(world.rng.integers(20_000, 3_000_000))
        if row == first:
            address = int(world.rng.integers(0x1000_0000, 0xF_0000_0000)) & ~0xF
            exception = world.rng.random() < 0.5
            message = (
                kernel_lines.graphics_exception(part.pci_bus_id, pid)
                if exception
                else kernel_lines.memory_fault(part.pci_bus_id, pid, address)
            )
            world.gpu_line(row, message)
        else:
            delay = float(world.rng.uniform(0.5, 8.0))
            world.gpu_line(row, kernel_lines.preempted(part.pci_bus_id, pid), delay)
    if job is not None:
        active.job_id = job.job_id
        world.board.stop(job, world.now, JobState.FAILED)


def _checkpoint_burst(active: ActiveFault, world: World, dt: float) -> None:
    load = world.parameters.jobs.paused_load
    world.load.pause(_nodes(active, world), world.topology.gpus_per_node, load)


def _software_power_cap(active: ActiveFault, world: World, dt: float) -> None:
    rows = _gpus(_nodes(active, world), world)
    busy = world.load.gpu[rows] > 0.5
    shows = world.rng.random(rows.size) < active.number("share_of_time")
    world.effects.capped[rows[busy & shows]] = True


ADVANCE_COMMON: Mapping[FaultName, Callable[[ActiveFault, World, float], None]] = MappingProxyType(
    {
        FaultName.LEAF_REBOOT: _leaf_reboot,
        FaultName.MOUNT_STALL: _mount_stall,
        FaultName.FACILITY_OUTAGE: _facility_outage,
        FaultName.PLANNED_REBOOT: _planned_reboot,
        FaultName.DRIVER_UPGRADE: _driver_upgrade,
        FaultName.CRASH_STORM: _crash_storm,
        FaultName.CHECKPOINT_BURST: _checkpoint_burst,
        FaultName.SOFTWARE_POWER_CAP: _software_power_cap,
    }
)

END_COMMON: Mapping[FaultName, Callable[[ActiveFault, World], None]] = MappingProxyType(
    {
        FaultName.LEAF_REBOOT: _leaf_back,
        FaultName.MOUNT_STALL: _mount_back,
        FaultName.FACILITY_OUTAGE: _power_back,
        FaultName.PLANNED_REBOOT: _reboot_done,
        FaultName.DRIVER_UPGRADE: _driver_back,
    }
)
