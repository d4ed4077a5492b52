"""Spares that become able later: leased to nodes that wait for one, in the judge's thread."""

from __future__ import annotations

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.judging.promoting import Promoter, begun, lease_audit
from gpuwarden_server.standby.repository import was_leased_since
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_verdict.standby import NO_CHANGE, BookChange, Lease, SpareState

LOOK_S = 1.0
"""Between two looks while a node waits: what makes a spare able takes minutes."""
_AT_HAND = frozenset({SpareState.COLD, SpareState.WARMING, SpareState.WARM})


class LatePromoter:
    """Looks for nodes that went out without a joiner, as the policy wants them to have one.

    One whose lease has ended since it went out does not wait: a person, or the policy's time, said
    that it has no replacement any more.

    Args:
        promoter: Leases at once, where a spare is able at once.
    """

    def __init__(self, promoter: Promoter) -> None:
        self._promoter = promoter
        self._again_at = 0.0

    def due(self, now: float) -> tuple[BookChange, tuple[AuditEntry, ...]]:
        """Leases that begin now, with their audit."""
        if now < self._again_at and self._again_at - now <= LOOK_S:
            return NO_CHANGE, ()
        self._again_at = now + LOOK_S
        shelf = self._promoter.shelf
        if not any(spare.state in _AT_HAND for spare in shelf.spares.values()):
            return NO_CHANGE, ()
        change, entries = NO_CHANGE, list[AuditEntry]()
        for decision in self._waiting():
            lease_begun = self._lease(decision, change, now)
            if lease_begun is not None:
                change = change.joined(lease_begun)
                entries += (lease_audit(lease, None) for lease in lease_begun.leases)
        return change, tuple(entries)

    def _waiting(self) -> list[Decision]:
        """Of each node that waits the exclusion that took it out, the longest out first."""
        shelf, placements = self._promoter.shelf, self._promoter.sight.placements
        first: dict[str, Decision] = {}
        for decision in self._promoter.book.decisions():
            node_id = decision.entity.node_id
            if not node_id or not covers(decision):
                continue
            known = first.get(node_id)
            if known is None or decision.decided_at < known.decided_at:
                first[node_id] = decision
        waiting = (
            one
            for node_id, one in first.items()
            if not shelf.stands_by(node_id)
            and shelf.lease_for(node_id) is None
            and placements.pool(node_id).standby.promote
        )
        return sorted(waiting, key=lambda one: (one.decided_at, one.id))

    def _lease(self, decision: Decision, change: BookChange, now: float) -> BookChange | None:
        sight, leaver = self._promoter.sight, decision.entity.node_id
        shelf, pool = self._promoter.shelf.after(change), sight.placements.pool(leaver)
        free = [
            spare
            for spare in shelf.spares.values()
            if spare.pool == pool.name and spare.state in _AT_HAND
        ]
        if not free:
            return None
        with sight.state.read() as connection:
            if was_leased_since(connection, leaver, decision.decided_at):
                return None
            looks = sight.looks(connection, free, now)
        choice = sight.best(leaver, looks, now)
        if choice is None:
            return None
        lease = Lease(
            epoch=shelf.last_epoch + 1,
            joiner=choice.look.spare.node_id,
            leaver=leaver,
            pool=pool.name,
            decision_id=decision.id,
            reason=f"{choice.why}; able only now",
            author=GPUWARDEN,
            begun_at=now,
            expires_at=now + pool.standby.lease_s if pool.standby.lease_s else None,
        )
        return begun(choice.look.spare, lease)
