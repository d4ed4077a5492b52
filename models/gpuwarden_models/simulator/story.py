"""What goes wrong and when: scripted faults, and how each of them unfolds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import assert_never

from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultKind, FaultName
from gpuwarden_models.simulator.parameters import MECHANISMS, Mechanism

__all__ = ["FAULT_KINDS", "FaultKind", "FaultName", "Repair", "ScriptedFault", "Shape", "Story"]

_STEPS = 4
_BURST_S = 600.0  # a burst is heard for a third of it


class Repair(StrEnum):
    """What somebody does at the end of a fault."""

    IN_PLACE = "in_place"  # sound again, volatile counters at 0, as after a reset
    REBOOT = "reboot"  # the node goes away and comes back
    REPLACE = "replace"  # the node goes away for longer; a part of another serial is in its slot


class Shape(StrEnum):
    """How a precursor grows over its ramp."""

    EARLY = "early"
    LINEAR = "linear"
    LATE = "late"
    STEPS = "steps"
    BURSTS = "bursts"

    def grown(self, progress: float, elapsed_s: float) -> float:
        """Share of the full effect.

        Args:
            progress: Share of the ramp that has passed, 0..1.
            elapsed_s: Since onset.
        """
        if progress >= 1.0:
            return 1.0
        match self:
            case Shape.EARLY:
                return float(progress**0.5)
            case Shape.LINEAR:
                return progress
            case Shape.LATE:
                return float(progress**3)
            case Shape.STEPS:
                return int(progress * _STEPS + 1) / (_STEPS + 1)
            case Shape.BURSTS:
                return progress**3 if elapsed_s % _BURST_S < _BURST_S / 3 else 0.0
            case _:
                assert_never(self)


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """One fault on one entity.

    Attributes:
        name: Which.
        entity: gpu_uuid, node, "node/device/port" or a place, as the fault's kind says.
        at_s: Onset, seconds after the simulation's start.
        ramp_s: Time from onset to full effect; None takes the fault's default.
        duration_s: Onset to repair; infinite where nobody repairs it.
        severity: Scales the effect; 1 is typical.
        shape: How its precursor grows; None as the mechanism does of itself.
        repair: What ends it.
        echo: Whether its GPU, its job and their peers speak too.
        storm_per_hour: How often its code is logged again while it lasts.
        drained: Whether jobs leave its node once action is needed, until the repair.
    """

    name: FaultName
    entity: str
    at_s: float
    ramp_s: float | None = None
    duration_s: float = inf
    severity: float = 1.0
    shape: Shape | None = None
    repair: Repair = Repair.IN_PLACE
    echo: bool = False
    storm_per_hour: float = 0.0
    drained: bool = False

    @property
    def kind(self) -> FaultKind:
        """What this fault is."""
        return FAULT_KINDS[self.name]

    @property
    def mechanism(self) -> Mechanism:
        """Its numbers."""
        return MECHANISMS[self.name]

    @property
    def full_after_s(self) -> float:
        """Ramp in force."""
        return self.mechanism.ramp_s if self.ramp_s is None else self.ramp_s

    @property
    def needed_after_s(self) -> float:
        """Onset to the moment from which action is needed."""
        return self.full_after_s * self.mechanism.needed_at


Story = tuple[ScriptedFault, ...]
"""Scripted faults of one run."""
