"""Where nodes stand and which pool has them, as a fleet without an inventory service knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.fleet import NodeRecord
from gpuwarden_verdict.places import PlaceKind
from gpuwarden_verdict.policy.document import PolicyDocument, PoolPolicy
from gpuwarden_verdict.policy.parse import pool_of


class FleetPlacing:
    """Places as somebody set them, else as nodes' own labels tell.

    Attributes:
        policy: The rules.
        version: Rises when nodes are elsewhere than before.
        expected: GPUs that nodes should have, by node, where somebody set it.
    """

    def __init__(self, policy: PolicyDocument, directory: Directory) -> None:
        self.policy = policy
        self.version = 0
        self.expected: dict[str, int] = {}
        self._directory = directory
        self._set: dict[str, NodePlace] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._places: Mapping[str, NodePlace] = {}

    def put(self, node_id: str, place: NodePlace, gpus_expected: int | None = None) -> None:
        """Say where a node stands, and how many GPUs it should have."""
        self._set[node_id] = place
        if gpus_expected is not None:
            self.expected[node_id] = gpus_expected
        self._labels.pop(node_id, None)
        self.version += 1

    def rack(self, node_id: str) -> str:
        """The rack of a node, "" for none that is known."""
        node = self._directory.node(node_id)
        return self._place(node_id, node.labels if node is not None else {}).rack

    def pool(self, node_id: str) -> PoolPolicy:
        """The policy's pool of a node."""
        return pool_of(self.policy, node_id, self.words(node_id))

    def words(self, node_id: str) -> Mapping[str, str]:
        """Labels of a node, rack, leaf and power domain among them."""
        node = self._directory.node(node_id)
        labels = dict(node.labels) if node is not None else {}
        place = self._place(node_id, labels)
        words = {
            PlaceKind.RACK.value: place.rack,
            PlaceKind.LEAF.value: place.leaf,
            PlaceKind.POWER.value: place.power,
        }
        return {**labels, **{k: v for k, v in words.items() if v}}

    def places(self, nodes: Sequence[NodeRecord]) -> Mapping[str, NodePlace]:
        """Places by node; the same object while nothing changes."""
        moved = {n.node_id: n.labels for n in nodes if self._labels.get(n.node_id) is not n.labels}
        if moved:
            made = {node_id: self._place(node_id, labels) for node_id, labels in moved.items()}
            self._places = {**self._places, **made}
            self._labels |= moved
        return self._places

    def _place(self, node_id: str, labels: Mapping[str, str]) -> NodePlace:
        told = self._set.get(node_id, NodePlace())
        return NodePlace(
            rack=told.rack or labels.get(PlaceKind.RACK, ""),
            leaf=told.leaf or labels.get(PlaceKind.LEAF, ""),
            power=told.power or labels.get(PlaceKind.POWER, ""),
            mounts=told.mounts,
        )
