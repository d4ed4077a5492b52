"""Leases of spares, decided in the judge's thread and written with what they follow from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.judging.spares import SpareSight
from gpuwarden_server.standby.meters import StandbyMeters
from gpuwarden_server.standby.repository import write_change
from gpuwarden_verdict.engine.book import Book
from gpuwarden_verdict.engine.domain import Outcome
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.document import Decision
from gpuwarden_verdict.standby import (
    NO_CHANGE,
    BookChange,
    Lease,
    Shelf,
    Spare,
    SpareState,
)

EXPIRED = "the lease has expired"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Promoter:
    """Leases a spare for each node that is excluded, where the policy says so.

    Attributes:
        book: What is true now; read before the outcomes that are about to be written are in it.
        sight: The book of spares, and how they do.
        meters: Figures.
    """

    book: Book
    sight: SpareSight
    meters: StandbyMeters

    @property
    def shelf(self) -> Shelf:
        """The book of spares as it was committed last."""
        return self.sight.shelf()

    def write(
        self, connection: Connection, outcomes: Sequence[Outcome], asked: BookChange, at: float
    ) -> BookChange:
        """Write what a person asked for and what follows from outcomes, in their transaction.

        Args:
            connection: Writing connection.
            outcomes: Those that were taken.
            asked: What a person's command changes of the book; it is audited as theirs.
            at: Epoch seconds.
        """
        write_change(connection, asked)
        change = asked
        for decision in self._left(outcomes):
            shelf = self.shelf.after(change)
            try:
                own = self._replace(connection, decision, shelf, outcomes, at)
            except OperationalError:
                raise  # the file, not the lease: the whole pass is tried again
            except Exception as error:  # a fault here must not keep a failing node in use
                leaver = decision.entity.node_id
                self.meters.unmet.labels(self.sight.placements.pool(leaver).name).inc()
                _log.error("standby_failed", leaver=leaver, exc_info=error)
                continue
            change = change.joined(own)
        return change

    def taken(self, change: BookChange) -> None:
        """What was committed is true, counted and told."""
        before = self.shelf
        self.sight.book.apply(change)
        for lease in change.leases:
            if lease.ended_at is not None:
                _log.info("standby_released", joiner=lease.joiner, leaver=lease.leaver)
                self._note_unmet(lease)
            elif before.leases.get(lease.joiner) != lease:
                by = "gpuwarden" if lease.author == GPUWARDEN else "person"
                self.meters.promotions.labels(lease.pool, by).inc()
                _log.info(
                    "standby_promoted",
                    joiner=lease.joiner,
                    leaver=lease.leaver,
                    lease_epoch=lease.epoch,
                    reason=lease.reason,
                )

    def expired(self, now: float) -> tuple[BookChange, tuple[AuditEntry, ...]]:
        """Leases whose time is over; until somebody says so, their spares do not stand by again.

        That a time is over does not stop the work on a spare: taken for the next node at once, it
        would be told to two jobs.
        """
        change, entries = NO_CHANGE, list[AuditEntry]()
        for lease in self.shelf.leases.values():
            if lease.expires_at is not None and now >= lease.expires_at:
                ended = lease.ended(GPUWARDEN, EXPIRED, now)
                change = change.joined(returned(self.shelf, ended, SpareState.RETURNING))
                entries.append(lease_audit(ended, lease))
        return change, tuple(entries)

    def _note_unmet(self, ended: Lease) -> None:
        """A node that is out still when its lease expires has no replacement any more."""
        if ended.ended_why != EXPIRED or ended.ended_by != GPUWARDEN:
            return
        keys = self.book.targets_on(ended.leaver)
        if any(covers(one) for key in keys for one in self.book.decisions_of(key)):
            self.meters.unmet.labels(ended.pool).inc()
            _log.warning("standby_missing", leaver=ended.leaver, pool=ended.pool, reason=EXPIRED)

    def _left(self, outcomes: Iterable[Outcome]) -> list[Decision]:
        """The exclusion that takes each node out, of nodes that nothing kept out before."""
        found: dict[str, Decision] = {}
        for outcome in outcomes:
            for move in outcome.decision_moves:
                if self._begins(move.decision):
                    found.setdefault(move.decision.entity.node_id, move.decision)
        return [found[node_id] for node_id in sorted(found)]

    def _begins(self, decision: Decision) -> bool:
        if not covers(decision):
            return False
        before = self.book.find_decision(decision.id)
        keys = self.book.targets_on(decision.entity.node_id)
        standing = (one for key in keys for one in self.book.decisions_of(key))
        was_out = before is not None and covers(before)
        return not (was_out or any(covers(one) for one in standing))

    def _replace(
        self,
        connection: Connection,
        decision: Decision,
        shelf: Shelf,
        outcomes: Sequence[Outcome],
        at: float,
    ) -> BookChange:
        """Lease a spare where one is wanted and may be taken, and write that down."""
        with connection.begin_nested():
            own = self._replacement(connection, decision, shelf, outcomes, at)
            write_change(connection, own)
            for lease in own.leases:
                record_audit(connection, lease_audit(lease, None))
        return own

    def _replacement(
        self,
        connection: Connection,
        decision: Decision,
        shelf: Shelf,
        outcomes: Sequence[Outcome],
        at: float,
    ) -> BookChange:
        leaver = decision.entity.node_id
        pool = self.sight.placements.pool(leaver)
        known = shelf.stands_by(leaver) or shelf.lease_for(leaver) is not None
        if not pool.standby.promote or known:
            return NO_CHANGE
        # What is concluded about a spare in this very transaction does not show yet.
        moving = {one.target.node_id for one in outcomes}
        free = [
            spare
            for spare in shelf.spares.values()
            if spare.pool == pool.name and spare.node_id not in moving
        ]
        choice = self.sight.best(leaver, self.sight.looks(connection, free, at), at)
        if choice is None:
            self.meters.unmet.labels(pool.name).inc()
            _log.warning("standby_missing", leaver=leaver, pool=pool.name)
            return NO_CHANGE
        until = at + pool.standby.lease_s if pool.standby.lease_s else None
        lease = Lease(
            epoch=shelf.last_epoch + 1,
            joiner=choice.look.spare.node_id,
            leaver=leaver,
            pool=pool.name,
            decision_id=decision.id,
            reason=choice.why,
            author=GPUWARDEN,
            begun_at=at,
            expires_at=until,
        )
        return begun(choice.look.spare, lease)


def begun(spare: Spare, lease: Lease) -> BookChange:
    """A lease that begins, with its spare at work from now on."""
    return BookChange(spares=(replace(spare, state=SpareState.LEASED),), leases=(lease,))


def returned(shelf: Shelf, ended: Lease, state: SpareState = SpareState.COLD) -> BookChange:
    """A lease that ended; its spare, where it is in the book still, is in `state` from now on."""
    spare = shelf.spares.get(ended.joiner)
    changed = () if spare is None else (replace(spare, state=state),)
    return BookChange(spares=changed, leases=(ended,))


def lease_audit(lease: Lease, before: Lease | None, key_id: str | None = None) -> AuditEntry:
    """What the audit keeps of a lease that began or ended."""
    over = lease.ended_at is not None
    return AuditEntry(
        at=lease.begun_at if lease.ended_at is None else lease.ended_at,
        author=lease.ended_by if over else lease.author,
        key_id=key_id,
        action="release_standby" if over else "promote_standby",
        target=f"node:{lease.joiner}",
        reason=lease.ended_why if over else lease.reason,
        before=None if before is None else lease_form(before),
        after=lease_form(lease),
    )


def lease_form(lease: Lease) -> dict[str, object]:
    """The parts of a lease that people look for in the audit."""
    return {
        "epoch": lease.epoch,
        "leaver": lease.leaver,
        "decision_id": lease.decision_id,
        "expires_at": lease.expires_at,
        "ended_at": lease.ended_at,
    }
