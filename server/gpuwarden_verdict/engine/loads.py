"""What is out in each pool: counted anew when the fleet changes, folded after every decision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.ports import Placing
from gpuwarden_verdict.policy.document import Decision, DecisionMove, PoolPolicy
from gpuwarden_verdict.policy.guards import (
    NO_SEAT,
    Counted,
    PoolLoad,
    Seat,
    load_after,
    pool_loads,
)


class PoolBook:
    """Pools by node and their loads; used in the judge's thread.

    Attributes:
        policy: The rules.
        seat_of: Where a node stands, and what runs there.
    """

    def __init__(
        self,
        placements: Placing,
        book: Book,
        census: Callable[[], Counted],
        seat_of: Callable[[str], Seat] = lambda _node_id: NO_SEAT,
    ) -> None:
        """Make one.

        Args:
            placements: Rules, and where nodes are.
            book: Decisions in force.
            census: Who counts now; asked only when a load is wanted after `recount`.
            seat_of: Where a node stands, and what runs there.
        """
        self.policy = placements.policy
        self._placements = placements
        self._version = placements.version
        self._book = book
        self._census = census
        self.seat_of = seat_of
        self._pools: dict[str, PoolPolicy] = {}
        self._loads: dict[str, PoolLoad] | None = None
        self._folded: dict[str, Decision] = {}

    def pool(self, node_id: str) -> PoolPolicy:
        """The pool of a node."""
        if self._version != self._placements.version:  # nodes are elsewhere than before
            self._version, self._loads = self._placements.version, None
            self._pools.clear()
        pool = self._pools.get(node_id)
        if pool is None:
            pool = self._pools[node_id] = self._placements.pool(node_id)
        return pool

    def words(self, node_id: str) -> Mapping[str, str]:
        """Labels of a node, by which a policy may name it."""
        return self._placements.words(node_id)

    def pool_names(self, node_ids: Iterable[str]) -> Mapping[str, str]:
        """Pool name by node."""
        return {node_id: self.pool(node_id).name for node_id in node_ids}

    def rename(self, old: str) -> None:
        """A node is called something else from now on: its pool may be another one."""
        self._pools.pop(old, None)
        self.recount()

    def recount(self) -> None:
        """Nodes came, went or fell silent: count anew, by the book, when a load is wanted next."""
        self._loads = None
        self._folded.clear()

    def load(self, node_id: str) -> PoolLoad:
        """What is out in the pool of a node."""
        return self._counted().get(self.pool(node_id).name, PoolLoad(gpu_nodes=0))

    def loads(self) -> Mapping[str, PoolLoad]:
        """What is out in each pool, by name."""
        return dict(self._counted())

    def fold(self, node_id: str, moves: Sequence[DecisionMove]) -> None:
        """Count what was just decided, before it is committed: the next decision must see it."""
        if not moves:
            return
        name = self.pool(node_id).name
        live = [d for d in self._decisions() if self.pool(d.entity.node_id).name == name]
        self._counted()[name] = load_after(self.load(node_id), live, moves, self.seat_of(node_id))
        self._folded |= {move.decision.id: move.decision for move in moves}

    def _decisions(self) -> Iterable[Decision]:
        """Those of the book, as far as nothing was decided about them since the last count."""
        return ({d.id: d for d in self._book.decisions()} | self._folded).values()

    def _counted(self) -> dict[str, PoolLoad]:
        if self._loads is None:
            counted = pool_loads(
                self.policy,
                self._decisions(),
                self._census(),
                lambda node_id: self.pool(node_id).name,
                self.seat_of,
            )
            self._loads = dict(counted)
        return self._loads
