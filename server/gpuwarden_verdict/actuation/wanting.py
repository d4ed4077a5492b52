"""From exclusions of GPUs and nodes to the nodes that a consumer must not use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gpuwarden_verdict.actuation.domain import Wanted
from gpuwarden_verdict.exclusions import Exclusion
from gpuwarden_wire.metrics import EntityKind


def wanted_nodes(exclusions: Iterable[Exclusion]) -> Mapping[str, Wanted]:
    """Nodes that exclusions in force take out of a consumer that knows nodes only.

    Args:
        exclusions: In force, of GPUs and of nodes.
    """
    by_node: dict[str, list[Exclusion]] = defaultdict(list)
    for one in exclusions:
        by_node[one.node_id].append(one)
    return {node_id: _wanted(node_id, ones) for node_id, ones in sorted(by_node.items())}


def _wanted(node_id: str, exclusions: list[Exclusion]) -> Wanted:
    whole = [one for one in exclusions if one.entity_kind is EntityKind.NODE]
    leading = max(whole or exclusions, key=lambda one: (one.rung, -one.since, one.decision_id))
    gpus = () if whole else tuple(sorted(one.entity for one in exclusions))
    return Wanted(
        node_id=node_id,
        rung=max(one.rung for one in exclusions),
        decisions=tuple(sorted({one.decision_id for one in exclusions})),
        gpus=gpus,
        reason=leading.reason,
    )
