"""What goes wrong and when: the catalogue of faults, and scripted faults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from types import MappingProxyType

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind


class FaultName(StrEnum):
    """Faults and confounders that the simulator knows."""

    ROW_REMAP_FAILURE = "row_remap_failure"
    GPU_OFF_BUS = "gpu_off_bus"
    NIC_PORT_DOWN = "nic_port_down"
    SLOW_OVERHEATING = "slow_overheating"
    ECC_WEAR = "ecc_wear"
    APPLICATION_BURST = "application_burst"
    HOT_AISLE = "hot_aisle"
    POWER_CAP = "power_cap"
    MISSING_SCRAPES = "missing_scrapes"
    # One cause that many entities show; `common_causes` has them.
    LEAF_REBOOT = "leaf_reboot"
    MOUNT_STALL = "mount_stall"
    FACILITY_OUTAGE = "facility_outage"
    PLANNED_REBOOT = "planned_reboot"
    DRIVER_UPGRADE = "driver_upgrade"
    CRASH_STORM = "crash_storm"
    CHECKPOINT_BURST = "checkpoint_burst"
    SOFTWARE_POWER_CAP = "software_power_cap"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """What a fault is.

    Attributes:
        entity_kind: What `ScriptedFault.entity` names. For HOT_AISLE the entity is any node of the
            rack. Where it is a place, "leaf:NAME", "rack:NAME", "power:NAME" or "mount:POINT". For
            both, "*" is all nodes.
        fault_class: Where the fault lies.
        action_needed: False for confounders: nobody may be excluded for them.
        ramp_s: Default time from onset to full effect.
        needed_at: Share of the ramp after which action is needed.
    """

    entity_kind: EntityKind
    fault_class: FaultClass
    action_needed: bool
    ramp_s: float
    needed_at: float = 0.0


_GPU, _NODE, _NIC = EntityKind.GPU, EntityKind.NODE, EntityKind.NIC
_PLACE = EntityKind.PLACE
FAULT_KINDS: Mapping[FaultName, FaultKind] = MappingProxyType(
    {
        FaultName.ROW_REMAP_FAILURE: FaultKind(_GPU, FaultClass.MEMORY, True, 7200.0, 1.0),
        FaultName.GPU_OFF_BUS: FaultKind(_GPU, FaultClass.BUS, True, 0.0),
        FaultName.NIC_PORT_DOWN: FaultKind(_NIC, FaultClass.NIC, True, 0.0),
        # From 0.6 of the ramp the GPU runs about 11 C above its own past at full load.
        FaultName.SLOW_OVERHEATING: FaultKind(_GPU, FaultClass.THERMAL, True, 7200.0, 0.6),
        FaultName.ECC_WEAR: FaultKind(_GPU, FaultClass.MEMORY, True, 14_400.0, 1.0),
        FaultName.APPLICATION_BURST: FaultKind(_NODE, FaultClass.APPLICATION, False, 5.0),
        FaultName.HOT_AISLE: FaultKind(_NODE, FaultClass.OPERATOR, False, 1800.0),
        FaultName.POWER_CAP: FaultKind(_NODE, FaultClass.OPERATOR, False, 60.0),
        FaultName.MISSING_SCRAPES: FaultKind(_NODE, FaultClass.OPERATOR, False, 0.0),
        FaultName.LEAF_REBOOT: FaultKind(_PLACE, FaultClass.FABRIC, True, 0.0),
        FaultName.MOUNT_STALL: FaultKind(_PLACE, FaultClass.STORAGE, True, 60.0),
        FaultName.FACILITY_OUTAGE: FaultKind(_PLACE, FaultClass.POWER, False, 0.0),
        FaultName.PLANNED_REBOOT: FaultKind(_PLACE, FaultClass.OPERATOR, False, 120.0),
        FaultName.DRIVER_UPGRADE: FaultKind(_PLACE, FaultClass.OPERATOR, False, 120.0),
        FaultName.CRASH_STORM: FaultKind(_NODE, FaultClass.APPLICATION, False, 5.0),
        FaultName.CHECKPOINT_BURST: FaultKind(_PLACE, FaultClass.APPLICATION, False, 0.0),
        FaultName.SOFTWARE_POWER_CAP: FaultKind(_PLACE, FaultClass.OPERATOR, False, 0.0),
    }
)


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
    """

    name: FaultName
    entity: str
    at_s: float
    ramp_s: float | None = None
    duration_s: float = inf
    severity: float = 1.0

    @property
    def kind(self) -> FaultKind:
        """What this fault is."""
        return FAULT_KINDS[self.name]

    @property
    def full_after_s(self) -> float:
        """Ramp in force."""
        return self.kind.ramp_s if self.ramp_s is None else self.ramp_s

    @property
    def needed_after_s(self) -> float:
        """Onset to the moment from which action is needed."""
        return self.full_after_s * self.kind.needed_at


Story = tuple[ScriptedFault, ...]
"""Scripted faults of one run."""
