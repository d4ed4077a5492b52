"""Labels of a node: its own, and its pool."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.notifications.facts.outbox import Places


def node_labels(placements: Placements) -> Places:
    """What facts, routes and silences call a node: the labels of its inventory and its pool."""

    def labels_of(node_id: str) -> Mapping[str, str]:
        return {**placements.words(node_id), "pool": placements.pool(node_id).name}

    return labels_of
