"""By which limit a fleet's scores are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuwarden_verdict.fusion.gate import exclude_limits
from gpuwarden_verdict.policy.document import PolicyDocument, PoolPolicy


class TriedLimit:
    """The highest confidence from which every pool of the fleet excludes; one thread uses it.

    Of a pool whose rules differ by class the lowest counts. A trial pools the healthy time of all
    nodes, so that it speaks for the highest of their limits only.
    """

    def __init__(
        self,
        policy_of: Callable[[], PolicyDocument],
        pool_of: Callable[[str], PoolPolicy],
        version_of: Callable[[], int],
    ) -> None:
        """Ask for the rules.

        Args:
            policy_of: The policy in force.
            pool_of: Rules of a node.
            version_of: Changes when nodes may be in other pools than before.
        """
        self._policy_of = policy_of
        self._pool_of = pool_of
        self._version_of = version_of
        self._known: tuple[object, ...] = ()
        self._of_node: dict[str, float] = {}

    def over(self, node_ids: Iterable[str]) -> float:
        """The highest limit of the pools that these nodes are in; of all pools where there is none.

        Args:
            node_ids: Of the fleet.
        """
        policy = self._policy_of()
        limits = {min(exclude_limits(pool)) for pool in policy.pools}
        if len(limits) == 1:
            return limits.pop()
        known = (policy.version, self._version_of())
        if known != self._known:
            self._known = known
            self._of_node.clear()
        return max((self._limit_of(node_id) for node_id in node_ids), default=max(limits))

    def _limit_of(self, node_id: str) -> float:
        limit = self._of_node.get(node_id)
        if limit is None:
            limit = self._of_node[node_id] = min(exclude_limits(self._pool_of(node_id)))
        return limit
