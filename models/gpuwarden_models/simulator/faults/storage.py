"""Faults of a node's own drives."""

from __future__ import annotations

from gpuwarden_models.simulator import kernel_lines
from gpuwarden_models.simulator.active import ActiveFault
from gpuwarden_models.simulator.faults.echoes import due, end_job
from gpuwarden_models.simulator.story import Shape
from gpuwarden_models.simulator.topology import DISKS
from gpuwarden_models.simulator.world import World
from gpuwarden_wire.metrics import EntityKind

_LINES_PER_HOUR = 6.0  # assumed


def nvme_wear(active: ActiveFault, world: World, dt: float) -> None:
    """The first drive wears out: slower, with media errors, its spare blocks used up."""
    node, growth = active.row, active.growth(Shape.LINEAR)
    world.effects.disk_slower[node] += active.number("slower") * growth
    world.effects.media_errors_per_hour[node] += active.number("media_errors_per_hour") * growth
    if active.needed and due(world, _LINES_PER_HOUR * growth, dt):
        sector = int(world.rng.integers(1, 1 << 31))
        world.kernel_line(
            node, kernel_lines.medium_error(DISKS[0], sector), EntityKind.DISK, DISKS[0]
        )


def nvme_controller_down(active: ActiveFault, world: World, dt: float) -> None:
    """The first drive stops answering; what stood on it is read-only, and the job ends."""
    node, controller = active.row, DISKS[0].removesuffix("n1")
    world.effects.disk_gone[node] = True
    if not active.once("down"):
        return
    world.kernel_line(node, kernel_lines.drive_down(controller), EntityKind.DISK, DISKS[0])
    world.kernel_line(node, kernel_lines.drive_removed(controller), EntityKind.DISK, DISKS[0], 2.0)
    world.kernel_line(node, kernel_lines.read_only(DISKS[0]), EntityKind.NODE, "", 2.5)
    if active.fault.echo:
        end_job(active, world, node)
