"""People's words about spares, taken by the judge in turn with everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuwarden_server.access.domain import AuditEntry, audit_by
from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions.ports import Author
from gpuwarden_server.judging.commands import JudgeDesk
from gpuwarden_server.judging.promoting import Promoter, begun, lease_audit, returned
from gpuwarden_server.judging.worker import Concluded
from gpuwarden_server.standby.ports import AddOrder, Keeps, PromoteOrder
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_verdict.standby import (
    BookChange,
    Lease,
    Look,
    Shelf,
    Spare,
    SpareState,
)

Approve = Callable[[str, Author, float], Concluded]
"""What the approval of waiting advice amounts to, by its id; raises where it may not be."""


@dataclass(frozen=True, slots=True)
class StandbyWords:
    """What each word amounts to; used in the judge's thread.

    Attributes:
        promoter: The book of spares, and how they do.
        book: What is true now.
        approve: Brings waiting advice into force.
    """

    promoter: Promoter
    book: Book
    approve: Approve

    def add(self, order: AddOrder, caller: Principal, now: float) -> Concluded:
        """Let a node stand by, or say how far a spare is."""
        sight, shelf = self.promoter.sight, self.promoter.shelf
        pools = [one.name for one in sight.placements.policy.pools]
        pool = order.pool or sight.placements.pool(order.node_id).name
        if pool not in pools:
            raise ProblemError(
                404,
                "not_found",
                f"body.pool: the policy has no pool {pool!r}",
                f"Name one of {', '.join(pools)}.",
            )
        before = shelf.spares.get(order.node_id)
        _refuse_leased(shelf, order.node_id)
        made = before or Spare(order.node_id, pool, order.state, now, caller.name)
        after = replace(
            made,
            pool=pool,
            state=order.state,
            proven_at=now if order.proven else made.proven_at,
            reason=order.reason,
        )
        entry = _audit(caller, now, "add_standby", order.reason, before, after)
        if before == after:
            return Concluded((), (), before)
        return Concluded((), (entry,), after, standby=BookChange(spares=(after,)))

    def remove(self, node_id: str, reason: str, caller: Principal, now: float) -> Concluded:
        """Let a node stand by no more."""
        shelf = self.promoter.shelf
        spare = _spare_of(shelf, node_id)
        _refuse_leased(shelf, node_id)
        entry = _audit(caller, now, "remove_standby", reason, spare, None)
        return Concluded((), (entry,), spare, standby=BookChange(removed=(node_id,)))

    def promote(self, order: PromoteOrder, caller: Principal, now: float) -> Concluded:
        """Exclude a node where advice waits, and lease a spare for it."""
        shelf, sight = self.promoter.shelf, self.promoter.sight
        standing = shelf.lease_for(order.leaver)
        if standing is not None:
            if order.joiner not in (None, standing.joiner):
                raise ProblemError(
                    409,
                    "already_replaced",
                    f"{standing.joiner} works for {order.leaver} already (lease {standing.epoch})",
                    f"Release {standing.joiner} first.",
                )
            return Concluded((), (), standing)
        decision, excluded = self._exclusion(order, caller, now)
        look, why = self._joiner(order, now)
        rules = sight.placements.pool(order.leaver)
        lease_s = rules.standby.lease_s if order.lease_s is None else order.lease_s
        lease = Lease(
            epoch=shelf.last_epoch + 1,
            joiner=look.spare.node_id,
            leaver=order.leaver,
            pool=rules.name,
            decision_id=decision.id,
            reason=f"{order.reason}; {why}",
            author=caller.name,
            begun_at=now,
            expires_at=now + lease_s if lease_s else None,
        )
        entry = lease_audit(lease, None, caller.key_id)
        return replace(
            excluded,
            audits=(*excluded.audits, entry),
            answer=lease,
            standby=begun(look.spare, lease),
        )

    def release(
        self, node_id: str, keep: Keeps, reason: str, caller: Principal, now: float
    ) -> Concluded:
        """End the lease of a spare, and say who goes on in service."""
        shelf = self.promoter.shelf
        lease = shelf.leases.get(node_id)
        if lease is None:
            _spare_of(shelf, node_id)
            raise ProblemError(
                409, "not_leased", f"{node_id} is not leased", "See GET /v1/standby."
            )
        _refuse_loose_end(shelf, lease, keep)
        ended = lease.ended(caller.name, reason, now)
        change = returned(shelf, ended)
        if keep is Keeps.JOINER:
            swapped = Spare(
                lease.leaver, lease.pool, SpareState.COLD, now, caller.name, reason=reason
            )
            change = BookChange(spares=(swapped,), removed=(node_id,), leases=(ended,))
        entry = lease_audit(ended, lease, caller.key_id)
        told = {**(entry.after or {}), "keeps": keep.value}
        return Concluded((), (replace(entry, after=told),), ended, standby=change)

    def _exclusion(
        self, order: PromoteOrder, caller: Principal, now: float
    ) -> tuple[Decision, Concluded]:
        """What excludes a node, or will in the same transaction."""
        keys = sorted(self.book.targets_on(order.leaver))
        decisions = [one for key in keys for one in self.book.decisions_of(key)]
        in_force = [one for one in decisions if covers(one)]
        if in_force:
            return in_force[0], Concluded((), (), None)
        waiting = [one for one in decisions if one.rung >= Rung.EXCLUDE]
        if not waiting:
            raise ProblemError(
                409,
                "not_excluded",
                f"nothing excludes {order.leaver}, and no advice to do so waits",
                "Pin it out (gpuwarden pin) or plan its leave (gpuwarden maintenance) first: "
                "a sound node is not replaced.",
            )
        first = max(waiting, key=lambda one: (one.rung, one.confidence))
        author = Author(caller.name, caller.key_id, order.reason, caller.role.value)
        return first, self.approve(first.id, author, now)

    def _joiner(self, order: PromoteOrder, now: float) -> tuple[Look, str]:
        sight, shelf = self.promoter.sight, self.promoter.shelf
        wanted = [one for one in shelf.spares.values() if order.joiner in (None, one.node_id)]
        if order.joiner is not None:
            _spare_of(shelf, order.joiner)
        with sight.state.read() as connection:
            looks = sight.looks(connection, wanted, now)
        if order.joiner is None:
            choice = sight.best(order.leaver, looks, now)
            if choice is not None:
                return choice.look, choice.why
            pool = sight.placements.pool(order.leaver).name
            raise ProblemError(
                409,
                "no_spare",
                f"no spare of pool {pool} may be taken for {order.leaver}",
                "GET /v1/standby says of each spare what stands against it.",
            )
        (look,) = looks
        obstacles = sight.obstacles(look, now)
        if obstacles:
            raise ProblemError(
                409,
                "spare_not_able",
                f"{order.joiner} may not be taken: {', '.join(obstacles)}",
                "Mend that, name another spare, or none for the best.",
            )
        return look, "chosen by hand"


class SpareDesk:
    """Implements what the routes of spares need."""

    def __init__(self, words: StandbyWords, desk: JudgeDesk) -> None:
        """Make a desk.

        Args:
            words: Touched in the judge's thread only.
            desk: Takes work to it.
        """
        self._words = words
        self._desk = desk

    def add(self, order: AddOrder, caller: Principal) -> Spare:
        """See `StandbyDesk`."""
        return self._desk.run(lambda now: self._words.add(order, caller, now), Spare)

    def remove(self, node_id: str, reason: str, caller: Principal) -> Spare:
        """See `StandbyDesk`."""
        return self._desk.run(lambda now: self._words.remove(node_id, reason, caller, now), Spare)

    def promote(self, order: PromoteOrder, caller: Principal) -> Lease:
        """See `StandbyDesk`."""
        return self._desk.run(lambda now: self._words.promote(order, caller, now), Lease)

    def release(self, node_id: str, keep: Keeps, reason: str, caller: Principal) -> Lease:
        """See `StandbyDesk`."""
        return self._desk.run(
            lambda now: self._words.release(node_id, keep, reason, caller, now), Lease
        )


def _spare_of(shelf: Shelf, node_id: str) -> Spare:
    spare = shelf.spares.get(node_id)
    if spare is None:
        raise ProblemError(
            404, "not_found", f"{node_id!r} is not in the book of spares", "See GET /v1/standby."
        )
    return spare


def _refuse_leased(shelf: Shelf, node_id: str) -> None:
    lease = shelf.leases.get(node_id)
    if lease is not None:
        raise ProblemError(
            409,
            "leased",
            f"{node_id} works for {lease.leaver} (lease {lease.epoch})",
            f"Release it first: gpuwarden standby release {node_id}.",
        )


def _refuse_loose_end(shelf: Shelf, lease: Lease, keep: Keeps) -> None:
    """A spare that failed at work has a spare itself: neither may stand by while a lease names it.

    Raises:
        ProblemError: 409; what was released would stand by, and another lease of it holds.
    """
    outer, inner = shelf.leases.get(lease.leaver), shelf.lease_for(lease.joiner)
    if keep is Keeps.JOINER and outer is not None:
        raise ProblemError(
            409,
            "leaver_is_leased",
            f"{lease.leaver} cannot stand by: it works for {outer.leaver} (lease {outer.epoch})",
            f"Release it first: gpuwarden standby release {lease.leaver}.",
        )
    if keep is Keeps.LEAVER and inner is not None:
        raise ProblemError(
            409,
            "joiner_is_replaced",
            f"{lease.joiner} cannot stand by: {inner.joiner} works for it (lease {inner.epoch})",
            f"Release that first: gpuwarden standby release {inner.joiner} --keep leaver.",
        )


def _audit(
    caller: Principal,
    now: float,
    action: str,
    reason: str,
    before: Spare | None,
    after: Spare | None,
) -> AuditEntry:
    spare = after or before
    target = f"node:{spare.node_id}" if spare is not None else ""
    return replace(
        audit_by(caller, now, action, target),
        reason=reason,
        before=_form(before),
        after=_form(after),
    )


def _form(spare: Spare | None) -> dict[str, Any] | None:
    return None if spare is None else asdict(spare) | {"state": spare.state.value}
