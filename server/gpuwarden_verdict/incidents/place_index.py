"""Which nodes stand behind a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.place_rules import FLEET_NAME
from gpuwarden_verdict.places import PlaceKind
from gpuwarden_wire.metrics import EntityKind

_NOWHERE = NodePlace()


class PlaceIndex:
    """Nodes by place; made anew when nodes stand elsewhere."""

    def __init__(self, places: Mapping[str, NodePlace]) -> None:
        self.places = places
        self._behind: dict[tuple[PlaceKind, str], set[str]] = {}
        for node_id in places:
            for kind in (PlaceKind.RACK, PlaceKind.LEAF, PlaceKind.POWER, PlaceKind.MOUNT):
                for name in self.names(kind, node_id):
                    self._behind.setdefault((kind, name), set()).add(node_id)
        self._behind[PlaceKind.FLEET, FLEET_NAME] = set(places)

    def names(self, kind: PlaceKind, node_id: str) -> tuple[str, ...]:
        """Places of a kind that a node stands behind."""
        place = self.places.get(node_id, _NOWHERE)
        match kind:
            case PlaceKind.RACK:
                return (place.rack,) if place.rack else ()
            case PlaceKind.LEAF:
                return (place.leaf,) if place.leaf else ()
            case PlaceKind.POWER:
                return (place.power,) if place.power else ()
            case PlaceKind.MOUNT:
                return place.mounts
            case PlaceKind.FLEET:
                return (FLEET_NAME,)
            case PlaceKind.JOB:
                return ()

    def names_of(self, kind: PlaceKind, incident: Incident) -> tuple[str, ...]:
        """The same for what an incident is about: a mount names itself."""
        entity = incident.entity
        if kind is PlaceKind.MOUNT and entity.kind is EntityKind.MOUNT:
            return (entity.key.removeprefix(f"{entity.node_id}/"),)
        if kind is PlaceKind.MOUNT and entity.kind is EntityKind.DISK:
            return ()
        return self.names(kind, entity.node_id)

    def behind(self, kind: PlaceKind, name: str) -> frozenset[str]:
        """Nodes behind a place; none where no inventory names it."""
        return frozenset(self._behind.get((kind, name), ()))

    def places_of(self, kind: PlaceKind, node_ids: frozenset[str]) -> Iterator[str]:
        """Places of a kind behind which any of the nodes stand, each once, by name."""
        yield from sorted({name for node in node_ids for name in self.names(kind, node)})
