"""Where nodes stand, in the judge's words; worked out anew for what changed only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwarden_server.inventory.book import Placements
from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.engine.fleet import NodeRecord
from gpuwarden_verdict.places import PlaceKind


class NodePlaces:
    """Keeps the places of all nodes; used in the judge's thread."""

    def __init__(self, placements: Placements) -> None:
        self._placements = placements
        self._version = -1
        self._labels: dict[str, Mapping[str, str]] = {}
        self._places: Mapping[str, NodePlace] = {}

    def of(self, nodes: Sequence[NodeRecord]) -> Mapping[str, NodePlace]:
        """Places by node; the same object while neither inventory nor labels change."""
        version = self._placements.version  # first: a change after this is seen next time
        if version != self._version:
            self._labels, self._places = {}, {}
        moved = {n.node_id: n.labels for n in nodes if self._labels.get(n.node_id) is not n.labels}
        if moved:
            self._places = {**self._places, **{node_id: self._place(node_id) for node_id in moved}}
            self._labels |= moved
        if len(self._labels) > len(nodes):  # one was renamed
            self._labels = {node.node_id: node.labels for node in nodes}
            self._places = {node.node_id: self._places[node.node_id] for node in nodes}
        self._version = version
        return self._places

    def _place(self, node_id: str) -> NodePlace:
        placement = self._placements.placement(node_id)
        entry = placement.entry
        power = placement.words.get(PlaceKind.POWER, "")
        return NodePlace(entry.rack, entry.leaf, power, entry.mounts)
