"""Places: what many nodes stand behind, so that its fault looks like theirs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.metrics import EntityKind


class PlaceKind(StrEnum):
    """What a place is; it begins the key of the place."""

    RACK = "rack"
    LEAF = "leaf"  # leaf switch of the training fabric
    POWER = "power"  # power domain
    MOUNT = "mount"  # a network file system, by its mount point
    FLEET = "fleet"  # all nodes of this server: a power cut, or the network between
    JOB = "job"  # a training job, by the kind and id of its scheduler


_WORDS: Mapping[str, str] = MappingProxyType(
    {PlaceKind.LEAF: "leaf switch", PlaceKind.POWER: "power domain"}
)


def place_ref(kind: PlaceKind, name: str) -> EntityRef:
    """The entity of a place; it sits in no node."""
    return EntityRef(EntityKind.PLACE, f"{kind.value}:{name}", "")


def place_words(key: str) -> str:
    """A place in words: "leaf switch l12", "rack r7", "job slurm:4711"."""
    kind, _, name = key.partition(":")
    return "the fleet" if kind == PlaceKind.FLEET else f"{_WORDS.get(kind, kind)} {name}"
