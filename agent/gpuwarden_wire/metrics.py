"""Vocabulary of metrics: what a measured series is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EntityKind(StrEnum):
    """What a series or an event speaks about."""

    NODE = "node"
    GPU = "gpu"
    NIC = "nic"
    DISK = "disk"
    MOUNT = "mount"  # a network file system, named by its mount point
    PLACE = "place"  # what many nodes stand behind, a job too; the server's own: no agent sends it


DEVICE_KINDS = (
    EntityKind.NODE,
    EntityKind.GPU,
    EntityKind.NIC,
    EntityKind.DISK,
    EntityKind.MOUNT,
)
"""Kinds that sit in a node, and that an agent may speak of."""


class MetricKind(StrEnum):
    """How a series behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATE = "state"


class Storage(StrEnum):
    """How a series travels: counters as f64, since float32 loses integers above 2**24."""

    F32 = "f32"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured series of one kind of entity.

    Attributes:
        name: Prometheus-style name in base units; counters end in `_total`.
        entity_kind: The kind of entity that has it.
        kind: gauge, counter or state (a small closed set of numbers).
        unit: Base unit: "seconds", "bytes", "celsius", "watts", "hertz", "ratio", "" for counts.
        source: The call or kernel file that the value comes from.
        dcgm_name: Legacy dcgm-exporter name of the same signal, "" where it has none.
        speaks_to: The fault that a bad value announces, in a few words.
    """

    name: str
    entity_kind: EntityKind
    kind: MetricKind
    unit: str
    source: str
    dcgm_name: str
    speaks_to: str

    @property
    def storage(self) -> Storage:
        """Storage class on the wire and in server state."""
        return Storage.COUNTER if self.kind is MetricKind.COUNTER else Storage.F32


URGENT_METRICS = frozenset(
    {
        "gpu_recovery_action",
        "gpu_ecc_uncorrected_volatile_total",
        "gpu_row_remap_pending",
        "gpu_row_remap_failure",
    }
)
"""What announces a fault by itself: agents look at it between polls, and the server at once."""
