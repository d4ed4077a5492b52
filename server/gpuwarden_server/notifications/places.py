"""Labels of a node: its own, and its pool."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.notifications.facts.outbox import Places
from gpuwarden_verdict.policy.document import PolicyDocument
from gpuwarden_verdict.policy.parse import pool_of


def node_labels(directory: FleetDirectory, policy: PolicyDocument) -> Places:
    """What facts, routes and silences call a node: the labels of its inventory and its pool."""

    def labels_of(node_id: str) -> Mapping[str, str]:
        node = directory.node(node_id)
        own = dict(node.labels) if node is not None else {}
        return own | {"pool": pool_of(policy, node_id).name}

    return labels_of
