"""What ends a fault: a reset in place, a reboot, or another part in the slot."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault, nic_place
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.story import Repair
from gpuwarden_models.simulator.world import World
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind


def take_out(active: ActiveFault, world: World) -> None:
    """Somebody takes the node out until the repair: its job ends, no other begins."""
    nodes = np.array([node_of(active, world)])
    left_s = active.fault.duration_s - active.elapsed_s
    world.stop_jobs(nodes, JobState.CANCELLED)
    world.board.drain(nodes, world.now + left_s)


def end_fault(active: ActiveFault, world: World) -> None:
    """The repair: the hardware is sound again and a check says so.

    A reset is in place. For a reboot or another part the node goes away, and what is new there is
    told once it is back.
    """
    if not active.fault.kind.action_needed or active.fault.kind.entity_kind is EntityKind.PLACE:
        return
    match active.fault.repair:
        case Repair.IN_PLACE:
            _sound(active, world)
            _checked(active, world)
        case Repair.REBOOT:
            away_s = float(world.rng.uniform(*world.parameters.boots.node_s))
            world.send_away(node_of(active, world), away_s, lambda: _back(active, world))
        case Repair.REPLACE:
            away_s = float(world.rng.uniform(*world.parameters.boots.replacement_s))
            world.send_away(node_of(active, world), away_s, lambda: _replaced(active, world))


def node_of(active: ActiveFault, world: World) -> int:
    """Node of a fault's entity."""
    if active.fault.kind.entity_kind is EntityKind.NODE:
        return active.row
    return world.topology.gpus[active.row].node


def _back(active: ActiveFault, world: World) -> None:
    _sound(active, world)
    _checked(active, world)


def _replaced(active: ActiveFault, world: World) -> None:
    kind = active.fault.kind
    if kind.entity_kind is EntityKind.GPU:
        world.plant.lost[active.row] = False
        world.replace_gpu(active.row)
        world.inventory_event(node_of(active, world))
    elif kind.fault_class is FaultClass.STORAGE:
        world.machines.new_disk(active.row)
    _back(active, world)


def _sound(active: ActiveFault, world: World) -> None:
    if active.fault.kind.entity_kind is not EntityKind.GPU:
        return
    part = world.topology.gpus[active.row]
    was_lost = bool(world.plant.lost[active.row])
    world.plant.repair(active.row)
    if was_lost:
        world.other_event(part.node, EventKind.GPU_BACK, EntityKind.GPU, part.gpu_uuid)
        world.inventory_event(part.node)


def _checked(active: ActiveFault, world: World) -> None:
    kind, node = active.fault.kind.entity_kind, node_of(active, world)
    match kind:
        case EntityKind.GPU:
            uuid = world.topology.gpus[active.row].gpu_uuid
            world.other_event(node, EventKind.CHECK_PASSED, kind, uuid, check="burn_in")
        case EntityKind.NIC:
            part = world.topology.gpus[active.row]
            if active.fault.repair is Repair.IN_PLACE:
                message = kernel_lines.port_up(*nic_place(part.index))
                world.kernel_line(node, message, EntityKind.NIC, part.nic)
            world.other_event(node, EventKind.CHECK_PASSED, kind, part.nic, check="port_link")
        case _:
            world.other_event(node, EventKind.CHECK_PASSED, check="burn_in")
