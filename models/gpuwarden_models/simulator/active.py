"""A fault under way, and the entity that it is on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.story import ScriptedFault, Shape
from gpuwarden_models.simulator.topology import Topology
from gpuwarden_wire.metrics import EntityKind

# Bus numbers of the ConnectX-7 ports beside each GPU of an HGX H100 board (as DGX H100 lists them).
_NIC_BUSES = (0x18, 0x40, 0x4F, 0x5E, 0x9A, 0xC0, 0xCE, 0xDC)


EVERYWHERE = frozenset(
    {FaultName.HOT_AISLE}
    | {name for name, kind in FAULT_KINDS.items() if kind.entity_kind is EntityKind.PLACE}
    - {FaultName.MOUNT_STALL}
)
"""Faults that "*" puts on all nodes."""


class ActiveFault:
    """A fault under way.

    Attributes:
        fault: What was scripted.
        row: Row of its GPU, NIC or node in the topology; -1 for a place.
        elapsed_s: Since onset, at the end of the present step.
        job_id: Job that it ended, "" none so far.
        drawn: What it drew for its nodes, None so far.
        entity: What it is on by name: parts are replaced, and the next one has another.
        shows_at: Epoch seconds from which it changes what is read or logged; None as long as
            nothing does.
        counts_expected: Counts beyond the usual ones that were to be expected so far.
    """

    def __init__(self, fault: ScriptedFault, row: int) -> None:
        self.fault, self.row = fault, row
        self.elapsed_s = 0.0
        self.job_id = ""
        self.drawn: NDArray[np.float64] | None = None
        self.entity = fault.entity
        self.said: set[str] = set()
        self.shows_at: float | None = None
        self.counts_expected = 0.0

    @property
    def progress(self) -> float:
        """Share of the ramp that has passed, 0..1."""
        full = self.fault.full_after_s
        return 1.0 if full <= 0 else min(self.elapsed_s / full, 1.0)

    @property
    def needed(self) -> bool:
        """Whether the moment has come from which action is needed."""
        return self.elapsed_s >= self.fault.needed_after_s

    def number(self, name: str) -> float:
        """One of the mechanism's own numbers."""
        return self.fault.mechanism.numbers[name]

    def growth(self, usual: Shape = Shape.LATE) -> float:
        """Share of the full effect times severity, in the fault's shape or the usual one."""
        shape = self.fault.shape or usual
        return shape.grown(self.progress, self.elapsed_s) * self.fault.severity

    def once(self, milestone: str) -> bool:
        """True the first time it is asked for this milestone."""
        first = milestone not in self.said
        self.said.add(milestone)
        return first


def row_of(fault: ScriptedFault, topology: Topology) -> int:
    """Row of the faulty entity.

    Raises:
        ValueError: The fleet has no such entity; the message names it and one that exists.
    """
    rows: Mapping[str, int]
    if fault.entity == "*" and fault.name in EVERYWHERE:
        return -1
    match fault.kind.entity_kind:
        case EntityKind.GPU:
            rows = topology.gpu_row
        case EntityKind.NIC:
            rows = topology.nic_row
        case EntityKind.PLACE:
            rows = dict.fromkeys(topology.places, -1)
        case _:
            rows = topology.node_row
    if fault.entity not in rows:
        raise ValueError(
            f"{fault.name}: no {fault.kind.entity_kind} {fault.entity!r} in this fleet;"
            f" one that exists: {next(iter(rows))}"
        )
    return rows[fault.entity]


def nic_place(index: int) -> tuple[str, str]:
    """PCI address and interface of the NIC beside a GPU of an HGX board."""
    bus = _NIC_BUSES[index]
    return f"0000:{bus:02x}:00.0", f"ibp{bus}s0"
