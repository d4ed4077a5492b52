"""What is out in each pool: kept between passes, folded after every decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuwarden_server.judging.book import Book
from gpuwarden_verdict.policy.document import DecisionMove, PolicyDocument, PoolPolicy
from gpuwarden_verdict.policy.evaluate import PoolLoad, load_after, pool_loads
from gpuwarden_verdict.policy.parse import pool_of


class PoolBook:
    """Pools by node and their loads; used in the judge's thread."""

    def __init__(self, policy: PolicyDocument) -> None:
        self.policy = policy
        self._pools: dict[str, PoolPolicy] = {}
        self._loads: dict[str, PoolLoad] = {}

    def pool(self, node_id: str) -> PoolPolicy:
        """The pool of a node."""
        pool = self._pools.get(node_id)
        if pool is None:
            pool = self._pools[node_id] = pool_of(self.policy, node_id)
        return pool

    def pool_names(self, node_ids: Iterable[str]) -> Mapping[str, str]:
        """Pool name by node."""
        return {node_id: self.pool(node_id).name for node_id in node_ids}

    def refresh(self, book: Book, gpu_nodes: Iterable[str], silent: frozenset[str]) -> None:
        """Count anew: nodes come, go and fall silent."""
        self._loads = dict(pool_loads(self.policy, book.decisions(), gpu_nodes, silent))

    def load(self, node_id: str) -> PoolLoad:
        """What is out in the pool of a node."""
        return self._loads.get(self.pool(node_id).name, PoolLoad(gpu_nodes=0))

    def fold(self, node_id: str, book: Book, moves: Sequence[DecisionMove]) -> None:
        """Count what was just decided, before it is committed: the next decision must see it."""
        if not moves:
            return
        name = self.pool(node_id).name
        live = [one for one in book.decisions() if self.pool(one.entity.node_id).name == name]
        self._loads[name] = load_after(self.load(node_id), live, moves)
