"""What a verdict speaks about, and the states it can be in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType

from gpuwarden_wire.metrics import EntityKind


class FaultClass(StrEnum):
    """Where the fault lies."""

    MEMORY = "memory"
    NVLINK = "nvlink"
    BUS = "bus"
    DRIVER = "driver"
    THERMAL = "thermal"
    POWER = "power"
    NIC = "nic"
    HOST = "host"
    STORAGE = "storage"
    FABRIC = "fabric"
    APPLICATION = "application"
    OPERATOR = "operator"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """Urgency of action."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


SEVERITY_RANK = MappingProxyType({severity: rank for rank, severity in enumerate(Severity)})


class Rung(IntEnum):
    """Rungs of the ladder; each asks for more evidence than the one below."""

    OBSERVE = 0
    SUSPECT = 1
    EXCLUDE = 2
    DRAIN = 3
    EVICT = 4


class RecommendedAction(StrEnum):
    """What a person or the user's command hook should do to the hardware; we only recommend."""

    NONE = "none"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    CHECK_CABLE = "check_cable"
    INVESTIGATE = "investigate"
    REPAIR = "repair"


class EntityState(StrEnum):
    """State of a node or GPU."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    EXCLUDED = "excluded"
    DRAINING = "draining"
    IN_REPAIR = "in_repair"
    PROBATION = "probation"
    RETIRED = "retired"  # a node that a person took out of the fleet, until its agent sends again


TRANSITIONS = MappingProxyType(
    {
        EntityState.HEALTHY: frozenset(
            {EntityState.SUSPECT, EntityState.EXCLUDED, EntityState.RETIRED}
        ),
        EntityState.SUSPECT: frozenset(
            {EntityState.HEALTHY, EntityState.EXCLUDED, EntityState.RETIRED}
        ),
        EntityState.EXCLUDED: frozenset(
            {
                EntityState.DRAINING,
                EntityState.IN_REPAIR,
                EntityState.PROBATION,
                EntityState.HEALTHY,
                EntityState.RETIRED,
            }
        ),
        EntityState.DRAINING: frozenset(
            {
                EntityState.IN_REPAIR,
                EntityState.PROBATION,
                EntityState.HEALTHY,
                EntityState.RETIRED,
            }
        ),
        EntityState.IN_REPAIR: frozenset(
            {EntityState.PROBATION, EntityState.HEALTHY, EntityState.RETIRED}
        ),
        EntityState.PROBATION: frozenset(
            {EntityState.HEALTHY, EntityState.EXCLUDED, EntityState.RETIRED}
        ),
        EntityState.RETIRED: frozenset({EntityState.HEALTHY}),
    }
)
"""Allowed changes. EXCLUDED, DRAINING or IN_REPAIR -> HEALTHY is a revoke, -> PROBATION follows
evidence of recovery: for IN_REPAIR a passed check. A node that is retired leaves any state."""


@dataclass(frozen=True, slots=True)
class EntityRef:
    """An entity, named so that the name is unique over the fleet.

    Attributes:
        kind: node, gpu, nic, disk, mount or place.
        key: Node id; gpu_uuid; for a NIC or disk "node/device", for an InfiniBand port
            "node/device/port"; for a mount the node, a slash and the mount point; for a place
            what it is and its name: "rack:NAME", "leaf:NAME", "power:NAME", "mount:MOUNTPOINT",
            "job:KIND:ID".
        node_id: Node that it sits in, "" for a place.
    """

    kind: EntityKind
    key: str
    node_id: str


class Contact(StrEnum):
    """Whether we hear from a node; silence is never a hardware verdict."""

    LIVE = "live"
    SILENT = "silent"
    NEVER = "never"
    RETIRED = "retired"  # taken out of the fleet by a person: that it is silent is no trouble


def renamed_ref(ref: EntityRef, old: str, new: str) -> EntityRef:
    """The reference once node `old` is called `new`; others stay as they are."""
    if ref.node_id != old:
        return ref
    match ref.kind:
        case EntityKind.NODE:
            return EntityRef(ref.kind, new, new)
        case EntityKind.GPU:
            return replace(ref, node_id=new)
        case EntityKind.NIC | EntityKind.DISK | EntityKind.MOUNT:
            return EntityRef(ref.kind, new + ref.key[len(old) :], new)
        case EntityKind.PLACE:
            return ref
