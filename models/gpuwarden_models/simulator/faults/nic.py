"""Faults of network ports."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault, nic_place
from gpuwarden_models.simulator.faults.echoes import due, hang_job, node_of
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.metrics import EntityKind


def nic_port_down(active: ActiveFault, world: World, dt: float) -> None:
    """The link is gone; the job that talked over it hangs where the fault echoes."""
    world.effects.ports_down[active.row] = True
    if active.once("down"):
        part = world.topology.gpus[active.row]
        bus, interface = nic_place(part.index)
        message = kernel_lines.port_down(bus, interface)
        world.kernel_line(part.node, message, EntityKind.NIC, part.nic)
        if active.fault.echo:
            hang_job(active, world, part.node)


def nic_flapping(active: ActiveFault, world: World, dt: float) -> None:
    """Symbol errors and recoveries grow, then the link goes down and up, and now and then stays."""
    row, growth = active.row, active.growth()
    symbols = active.number("symbol_errors_per_hour") * growth
    world.effects.symbol_errors_per_hour[row] += symbols
    world.effects.recoveries_per_hour[row] += active.number("recoveries_per_hour") * growth
    if not active.needed:
        return
    flaps = "down" not in active.said and due(world, active.number("flaps_per_hour"), dt)
    if active.once("flaps") or flaps:
        _flap(active, world)
    if "down" in active.said:
        world.effects.ports_down[row] = True


def _flap(active: ActiveFault, world: World) -> None:
    part = world.topology.gpus[active.row]
    bus, device = nic_place(part.index)[0], part.nic.partition("/")[0]
    down = kernel_lines.port_changed(bus, device, up=False)
    world.kernel_line(part.node, down, EntityKind.NIC, part.nic)
    if active.progress >= 1.0 and world.rng.random() < active.number("down_share"):
        active.said.add("down")
        hang_job(active, world, part.node)
        return
    up = kernel_lines.port_changed(bus, device, up=True)
    world.kernel_line(part.node, up, EntityKind.NIC, part.nic, float(world.rng.uniform(1.0, 9.0)))
    world.machines.nic["nic_link_downed_total"][active.row] += 1


def nic_downtrain(active: ActiveFault, world: World, dt: float) -> None:
    """After one flap the link has half its rate."""
    row = active.row
    world.effects.rate_share[row] *= active.number("rate_share")
    world.effects.symbol_errors_per_hour[row] += active.number("symbol_errors_per_hour")
    if active.once("flap"):
        part = world.topology.gpus[row]
        bus, device = nic_place(part.index)[0], part.nic.partition("/")[0]
        for up, delay in ((False, 0.0), (True, 6.0)):
            message = kernel_lines.port_changed(bus, device, up=up)
            world.kernel_line(node_of(active, world), message, EntityKind.NIC, part.nic, delay)
        world.machines.nic["nic_link_downed_total"][row] += 1


def benign_symbol_noise(active: ActiveFault, world: World, dt: float) -> None:
    """Symbol errors come and go."""
    share = min(active.elapsed_s / max(active.fault.duration_s, 1.0), 1.0)
    hump = 4.0 * share * (1.0 - share) * active.fault.severity
    rate = active.number("symbol_errors_per_hour") * hump
    world.effects.symbol_errors_per_hour[active.row] += rate
