"""Faults of HBM and SRAM."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import address, end_job, moments, pid
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.world import World

_RESET = "0x1 (GPU Reset Required)"


def row_remap_failure(active: ActiveFault, world: World, dt: float) -> None:
    """Rows are remapped more and more often until the bank has none left: 63s, then 64 and 154."""
    gpu, part = active.row, world.topology.gpus[active.row]
    shaped = active.fault.shape is not None
    growth = active.growth() if shaped else active.progress**2 * active.fault.severity
    world.effects.ecc_corrected_per_hour[gpu] += active.number("corrected_per_hour") * growth
    if active.progress < 1.0:
        # Six rows on average before the bank runs out, most of them late.
        rate = active.number("rows") * 3.0 * active.progress**2 / active.fault.full_after_s
        for _ in range(int(world.rng.poisson(rate * dt))):
            world.plant["gpu_rows_remapped_correctable_total"][gpu] += 1
            marked = kernel_lines.row_marked(part.pci_bus_id, pid(world), address(world))
            world.gpu_line(gpu, marked)
            # Resets between jobs activate the earlier rows; the last ones wait for theirs.
            if active.progress > active.number("pending_from"):
                world.plant["gpu_row_remap_pending"][gpu] = 1.0
        return
    if active.once("failure"):
        world.plant.count_uncorrected(gpu)
        world.plant["gpu_rows_remapped_uncorrectable_total"][gpu] += 1
        world.plant["gpu_row_remap_pending"][gpu] = 1.0
        world.plant["gpu_row_remap_failure"][gpu] = 1.0
        world.plant["gpu_recovery_action"][gpu] = 1.0
        world.gpu_line(gpu, kernel_lines.row_remap_failed(part.pci_bus_id, address(world)))
        world.gpu_line(gpu, kernel_lines.recovery_action(part.pci_bus_id, _RESET), 0.1)
        if active.fault.echo:
            end_job(active, world, part.node)


def ecc_wear(active: ActiveFault, world: World, dt: float) -> None:
    """Corrected errors grow until the first uncorrected one: 48, 94 or 95, 63, again and again."""
    gpu, part = active.row, world.topology.gpus[active.row]
    floor = active.number("floor_share")
    grown = (active.progress**3 + floor * active.progress) * active.fault.severity
    growth = grown if active.fault.shape is None else active.growth()
    world.effects.ecc_corrected_per_hour[gpu] += active.number("corrected_per_hour") * growth
    if active.progress < 1.0:
        return
    again = dt / active.number("between_uncorrected_s")
    first = active.once("first")
    if first or world.rng.random() < again:
        world.plant.count_uncorrected(gpu)
        world.gpu_line(gpu, kernel_lines.double_bit_error(part.pci_bus_id, address(world)))
        late = active.number("uncontained_after") * active.fault.full_after_s
        write = kernel_lines.uncontained if active.elapsed_s > late else kernel_lines.contained
        world.gpu_line(gpu, write(part.pci_bus_id, pid(world)), 0.02)
        row = address(world)
        world.plant["gpu_rows_remapped_uncorrectable_total"][gpu] += 1
        world.plant["gpu_row_remap_pending"][gpu] = 1.0
        world.gpu_line(gpu, kernel_lines.row_marked(part.pci_bus_id, pid(world), row), 0.04)
        if active.fault.echo:
            end_job(active, world, part.node)


def uncontained_error(active: ActiveFault, world: World, dt: float) -> None:
    """XID 95 and 154, the 95 again as often as the storm says."""
    gpu, part = active.row, world.topology.gpus[active.row]
    first = active.once("first")
    if first:
        world.plant.count_uncorrected(gpu, int(1 + world.rng.poisson(active.number("errors"))))
        world.plant["gpu_recovery_action"][gpu] = 1.0
        end_job(active, world, part.node)
    for delay in [0.0] if first else moments(world, active.fault.storm_per_hour, dt):
        world.gpu_line(gpu, kernel_lines.uncontained(part.pci_bus_id, pid(world)), delay)
    if first:
        world.gpu_line(gpu, kernel_lines.recovery_action(part.pci_bus_id, _RESET), 0.1)


def sram_errors(active: ActiveFault, world: World, dt: float) -> None:
    """Corrected SRAM errors, then uncorrected ones until the threshold is passed."""
    gpu, part = active.row, world.topology.gpus[active.row]
    rate = active.number("corrected_per_hour") * active.growth(Shape.LINEAR)
    world.effects.sram_corrected_per_hour[gpu] += rate
    if active.progress < 1.0:
        return
    first = active.once("first")
    if not (first or world.rng.random() < dt / active.number("between_uncorrected_s")):
        return
    world.plant.count_uncorrected(gpu)
    counted = world.plant["gpu_sram_secded_uncorrected_aggregate_total"]
    counted[gpu] += 1
    if counted[gpu] >= active.number("errors"):
        world.plant["gpu_sram_threshold_exceeded"][gpu] = 1.0
    world.gpu_line(gpu, kernel_lines.double_bit_error(part.pci_bus_id, address(world)))
    world.gpu_line(gpu, kernel_lines.sram_detail(part.pci_bus_id), 0.01)
    world.gpu_line(gpu, kernel_lines.contained(part.pci_bus_id, pid(world)), 0.02)
    if active.fault.echo:
        end_job(active, world, part.node)


def benign_ecc(active: ActiveFault, world: World, dt: float) -> None:
    """Corrected errors rise and fall; now and then a row is remapped, and that is all."""
    gpu, part = active.row, world.topology.gpus[active.row]
    share = min(active.elapsed_s / max(active.fault.duration_s, 1.0), 1.0)
    hump = 4.0 * share * (1.0 - share) * active.fault.severity
    world.effects.ecc_corrected_per_hour[gpu] += active.number("corrected_per_hour") * hump
    if share > 0.5 and active.once("row") and world.rng.random() < active.number("remap_share"):
        world.plant["gpu_rows_remapped_correctable_total"][gpu] += 1
        world.gpu_line(gpu, kernel_lines.row_marked(part.pci_bus_id, pid(world), address(world)))
