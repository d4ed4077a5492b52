"""What labels and flags call entities."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.places import PlaceKind
from gpuwarden_wire.metrics import EntityKind

_OF_PLACES = {PlaceKind.LEAF.value: "fabric"}


@dataclass(frozen=True, slots=True)
class Name:
    """An entity in the words of labels.csv.

    Attributes:
        kind: gpu, node, nic, disk, mount, fabric, rack, power or job.
        entity: GPU by UUID, a NIC or disk by "node/device", a mount by its mount point, a leaf, a
            rack or a job by its own name.
        node: Its node, "" for what belongs to none.
    """

    kind: str
    entity: str
    node: str


def name_of(ref: EntityRef) -> Name:
    """The name of an entity."""
    if ref.kind is EntityKind.PLACE:
        kind, _, name = ref.key.partition(":")
        if kind == PlaceKind.JOB:
            name = name.partition(":")[2]
        return Name(_OF_PLACES.get(kind, kind), name, "")
    if ref.kind is EntityKind.NIC:
        return Name("nic", "/".join(ref.key.split("/")[:2]), ref.node_id)
    if ref.kind is EntityKind.MOUNT:
        return Name("mount", ref.key.removeprefix(f"{ref.node_id}/"), ref.node_id)
    return Name(ref.kind.value, ref.key, ref.node_id)
