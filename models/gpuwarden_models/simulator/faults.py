"""How each fault unfolds: one function a fault, called once a step while the fault lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault, nic_place
from gpuwarden_models.simulator.common_causes import ADVANCE_COMMON, END_COMMON
from gpuwarden_models.simulator.jobs import JobState
from gpuwarden_models.simulator.story import FaultName
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind


def _address(world: World) -> int:
    return int(world.rng.integers(0x1000_0000, 0xF_0000_0000)) & ~0xF


def _pid(world: World) -> int:
    return int(world.rng.integers(20_000, 3_000_000))


def _row_remap_failure(active: ActiveFault, world: World, dt: float) -> None:
    gpu, part = active.row, world.topology.gpus[active.row]
    growth = active.progress**2 * active.fault.severity
    world.effects.ecc_corrected_per_hour[gpu] += 12.0 * growth
    if active.progress < 1.0:
        # Six rows on average before the bank runs out, most of them late.
        rate = 6.0 * 3.0 * active.progress**2 / active.fault.full_after_s
        for _ in range(int(world.rng.poisson(rate * dt))):
            world.plant["gpu_rows_remapped_correctable_total"][gpu] += 1
            world.gpu_line(
                gpu, kernel_lines.row_marked(part.pci_bus_id, _pid(world), _address(world))
            )
            # Resets between jobs activate the earlier rows; the last ones wait for theirs.
            if active.progress > 0.7:
                world.plant["gpu_row_remap_pending"][gpu] = 1.0
        return
    if active.once("failure"):
        world.plant.count_uncorrected(gpu)
        world.plant["gpu_rows_remapped_uncorrectable_total"][gpu] += 1
        world.plant["gpu_row_remap_pending"][gpu] = 1.0
        world.plant["gpu_row_remap_failure"][gpu] = 1.0
        world.plant["gpu_recovery_action"][gpu] = 1.0
        world.gpu_line(gpu, kernel_lines.row_remap_failed(part.pci_bus_id, _address(world)))
        reset = "0x1 (GPU Reset Required)"
        world.gpu_line(gpu, kernel_lines.recovery_action(part.pci_bus_id, reset), 0.1)


def _gpu_off_bus(active: ActiveFault, world: World, dt: float) -> None:
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


def _nic_port_down(active: ActiveFault, world: World, dt: float) -> None:
    world.effects.ports_down[active.row] = True
    if active.once("down"):
        part = world.topology.gpus[active.row]
        bus, interface = nic_place(part.index)
        message = kernel_lines.port_down(bus, interface)
        world.kernel_line(part.node, message, EntityKind.NIC, part.nic)


def _slow_overheating(active: ActiveFault, world: World, dt: float) -> None:
    # At full effect and 650 W: 0.056 C/W x 650 W x 0.5 = 18 C above the sound GPU. That is odd, and
    # still under the slowdown limit, where rules begin to look; twice as severe slows it down.
    world.effects.cooling[active.row] += 0.5 * active.progress * active.fault.severity


def _ecc_wear(active: ActiveFault, world: World, dt: float) -> None:
    gpu, part = active.row, world.topology.gpus[active.row]
    growth = (active.progress**3 + 0.05 * active.progress) * active.fault.severity
    world.effects.ecc_corrected_per_hour[gpu] += 60.0 * growth
    if active.progress < 1.0:
        return
    if active.once("first") or world.rng.random() < dt / 900.0:
        world.plant.count_uncorrected(gpu)
        world.gpu_line(gpu, kernel_lines.double_bit_error(part.pci_bus_id, _address(world)))
        uncontained = active.elapsed_s > 1.5 * active.fault.full_after_s
        write = kernel_lines.uncontained if uncontained else kernel_lines.contained
        world.gpu_line(gpu, write(part.pci_bus_id, _pid(world)), 0.02)
        address = _address(world)
        world.plant["gpu_rows_remapped_uncorrectable_total"][gpu] += 1
        world.plant["gpu_row_remap_pending"][gpu] = 1.0
        world.gpu_line(gpu, kernel_lines.row_marked(part.pci_bus_id, _pid(world), address), 0.04)


def _application_burst(active: ActiveFault, world: World, dt: float) -> None:
    if not active.once("burst"):
        return
    job = world.board.job_on(active.row)
    nodes: NDArray[np.int64] = np.array([active.row]) if job is None else job.nodes
    per_node = world.topology.gpus_per_node
    for node in nodes.tolist():
        for gpu in range(node * per_node, (node + 1) * per_node):
            part, delay = world.topology.gpus[gpu], float(world.rng.uniform(0.0, 0.8))
            pid = _pid(world)
            fault = kernel_lines.memory_fault(part.pci_bus_id, pid, _address(world))
            world.gpu_line(gpu, fault, delay)
            world.gpu_line(gpu, kernel_lines.channel_stopped(part.pci_bus_id, pid), delay + 0.1)
    if job is not None:
        active.job_id = job.job_id
        world.board.stop(job, world.now, JobState.FAILED)


def _hot_aisle(active: ActiveFault, world: World, dt: float) -> None:
    warmer = 8.0 * active.progress * active.fault.severity
    if active.row < 0:
        world.effects.inlet_celsius += warmer
        return
    rack = world.topology.racks[active.row]
    for node in world.topology.nodes_in_rack(rack):
        world.effects.inlet_celsius[_gpus_of(world, world.topology.node_row[node])] += warmer


def _power_cap(active: ActiveFault, world: World, dt: float) -> None:
    limit = world.parameters.gpu.power_limit_watts - 230.0 * active.progress * active.fault.severity
    gpus = _gpus_of(world, active.row)
    world.effects.power_limit_watts[gpus] = np.minimum(
        world.effects.power_limit_watts[gpus], max(limit, 200.0)
    )


def _missing_scrapes(active: ActiveFault, world: World, dt: float) -> None:
    world.effects.silent[active.row] = True


def _gpus_of(world: World, node: int) -> slice:
    per_node = world.topology.gpus_per_node
    return slice(node * per_node, (node + 1) * per_node)


ADVANCE: Mapping[FaultName, Callable[[ActiveFault, World, float], None]] = MappingProxyType(
    {
        **ADVANCE_COMMON,
        FaultName.ROW_REMAP_FAILURE: _row_remap_failure,
        FaultName.GPU_OFF_BUS: _gpu_off_bus,
        FaultName.NIC_PORT_DOWN: _nic_port_down,
        FaultName.SLOW_OVERHEATING: _slow_overheating,
        FaultName.ECC_WEAR: _ecc_wear,
        FaultName.APPLICATION_BURST: _application_burst,
        FaultName.HOT_AISLE: _hot_aisle,
        FaultName.POWER_CAP: _power_cap,
        FaultName.MISSING_SCRAPES: _missing_scrapes,
    }
)


def end_fault(active: ActiveFault, world: World) -> None:
    """The repair: the hardware is sound again and a check says so."""
    kind = active.fault.kind.entity_kind
    if (ends := END_COMMON.get(active.fault.name)) is not None:
        ends(active, world)
    if not active.fault.kind.action_needed or kind is EntityKind.PLACE:
        return
    part = world.topology.gpus[active.row]
    if kind is EntityKind.NIC:
        message = kernel_lines.port_up(*nic_place(part.index))
        world.kernel_line(part.node, message, EntityKind.NIC, part.nic)
        world.other_event(part.node, EventKind.CHECK_PASSED, kind, part.nic, check="port_link")
        return
    was_lost = bool(world.plant.lost[active.row])
    world.plant.repair(active.row)
    if was_lost:
        world.other_event(part.node, EventKind.GPU_BACK, kind, part.gpu_uuid)
        world.inventory_event(part.node)
    world.other_event(part.node, EventKind.CHECK_PASSED, kind, part.gpu_uuid, check="burn_in")
