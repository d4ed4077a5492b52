"""The one transaction in which conclusions become true, the feed moves and the outbox is filled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.access.repository import record_audit
from gpuwarden_server.decisions import repository as decision_rows
from gpuwarden_server.decisions.feed import FeedChange
from gpuwarden_server.decisions.pins import repository as pin_rows
from gpuwarden_server.decisions.ports import PublishedFeed
from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.judging.book import StoredBook
from gpuwarden_server.judging.ports import FactSink
from gpuwarden_server.judging.promoting import Promoter
from gpuwarden_server.judging.repository import write_position, write_state, write_state_move
from gpuwarden_server.policies.repository import write_snapshot
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.domain import HEALTHY, Key, Outcome, key_of
from gpuwarden_verdict.exclusions import (
    Exclusion,
    PlaceOf,
    covers,
    difference,
    digest,
    exclusion_set,
    planned_leaves,
    would_exclude,
)
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.document import Decision, DecisionMove
from gpuwarden_verdict.standby import NO_CHANGE, BookChange


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one pass concluded.

    Attributes:
        outcomes: By target.
        at: Epoch seconds.
        position: Newest event row that is judged with it, None where no event was.
        audits: What people did.
        first: Written before the outcomes; an outcome that is refused undoes all then.
        standby: What a person changes of the book of spares.
    """

    outcomes: tuple[Outcome, ...]
    at: float
    position: int | None = None
    audits: tuple[AuditEntry, ...] = ()
    first: Callable[[Connection], None] | None = None
    standby: BookChange = NO_CHANGE


@dataclass(frozen=True, slots=True)
class Committed:
    """What became true.

    Attributes:
        outcomes: Those that were taken.
        refused: Targets whose rows could not be written, with the reason.
        feed: The feed afterwards.
        change: How the feed moved, None where it did not.
        standby: What changed of the book of spares.
    """

    outcomes: tuple[Outcome, ...]
    refused: tuple[tuple[Outcome, str], ...]
    feed: PublishedFeed
    change: FeedChange | None
    standby: BookChange


class Ledger:
    """Writes judgements; used in the judge's thread."""

    def __init__(
        self,
        state: Database,
        book: StoredBook,
        place_of: PlaceOf,
        facts: FactSink | None,
        promoter: Promoter,
    ) -> None:
        """Make a ledger.

        Args:
            state: state.db.
            book: What is true now; read here, changed by the caller after the commit.
            place_of: Where a GPU sits, by uuid.
            facts: Who is told in the same transaction, None for nobody.
            promoter: Leases spares in the same transaction.
        """
        self._state = state
        self._book = book
        self._place_of = place_of
        self._facts = facts
        self._promoter = promoter
        self._feed = PublishedFeed(
            book.head,
            exclusion_set(book.decisions(), place_of, promoter.shelf.joiner_of),
            would_exclude(book.decisions(), place_of),
            planned_leaves(book.pins(), book.decisions()),
        )

    @property
    def feed(self) -> PublishedFeed:
        """The feed after the last commit."""
        return self._feed

    def commit(self, judgement: Judgement) -> Committed:
        """Write a judgement and wait for its commit.

        Raises:
            WriteFailed: Nothing of it was written; it may be tried again.
        """
        # Without end: what may still be written must not be judged anew.
        committed = self._state.writer.call(
            lambda connection: self._write(connection, judgement), timeout_s=None
        )
        self._feed = committed.feed
        if self._facts is not None and committed.outcomes:
            self._facts.wake()
        return committed

    def _write(self, connection: Connection, judgement: Judgement) -> Committed:
        taken: list[Outcome] = []
        refused: list[tuple[Outcome, str]] = []
        if judgement.first is not None:
            judgement.first(connection)
        for outcome in judgement.outcomes:
            try:
                with connection.begin_nested():
                    self._write_outcome(connection, outcome, judgement.at)
            except OperationalError:
                raise  # the file, not the outcome: the whole pass is tried again
            except Exception as error:
                if judgement.first is not None:
                    raise
                refused.append((outcome, repr(error)))
                continue
            taken.append(outcome)
        standby = self._promoter.write(connection, taken, judgement.standby, judgement.at)
        feed, change = self._next_feed(taken, standby, judgement.at)
        if change is not None:
            decision_rows.write_feed(connection, change)
        if judgement.position is not None:
            write_position(connection, judgement.position)
        for entry in judgement.audits:
            record_audit(connection, entry)
        return Committed(tuple(taken), tuple(refused), feed, change, standby)

    def _write_outcome(self, connection: Connection, outcome: Outcome, at: float) -> None:
        moves = (*outcome.incident_moves, *outcome.history)
        last = {move.incident.id: move.incident for move in moves}
        last |= {incident.id: incident for incident in outcome.renewed_incidents}
        incident_rows.write_incidents(connection, tuple(last.values()))
        incident_rows.write_moves(connection, moves)
        incident_rows.write_acquittals(connection, outcome.acquittals)
        incident_rows.write_clearances(connection, outcome.clearances)
        incident_rows.delete_clearances(connection, outcome.ended_clearances)
        decision_rows.write_decision_moves(connection, outcome.decision_moves, outcome.snapshots)
        decision_rows.write_decisions(connection, outcome.renewed_decisions)
        pin_rows.add(connection, outcome.pins)
        pin_rows.change(connection, outcome.changed_pins)
        pin_rows.end(connection, outcome.ended_pins, at)
        if outcome.frozen is not None:
            write_snapshot(connection, outcome.frozen)
        self._write_state(connection, outcome)
        for move in outcome.decision_moves:
            self._audit_exclusion(connection, move)
        if self._facts is not None:
            self._facts.write_facts(connection, outcome.incident_moves, outcome.decision_moves)

    def _write_state(self, connection: Connection, outcome: Outcome) -> None:
        move = outcome.state_move
        key = key_of(outcome.target)
        checked = outcome.checked_at
        if move is None and checked is None and not (outcome.relocated and self._is_kept(key)):
            return
        record = move.after if move is not None else self._book.record_of(key)
        checked_at = checked if checked is not None else self._book.checked_at(key)
        write_state(connection, outcome.target, record, checked_at)
        if move is not None:
            write_state_move(connection, move)

    def _is_kept(self, key: Key) -> bool:
        """Whether the state of an entity was ever written."""
        return self._book.record_of(key) is not HEALTHY or self._book.checked_at(key) is not None

    def _audit_exclusion(self, connection: Connection, move: DecisionMove) -> None:
        """Gpuwarden's own writes; people's are audited where they are taken."""
        before = self._book.find_decision(move.decision.id)
        action = _exclusion_action(before, move.decision)
        if move.author != GPUWARDEN or not action:
            return
        entity = move.decision.entity
        record_audit(
            connection,
            AuditEntry(
                at=move.at,
                author=GPUWARDEN,
                key_id=None,
                action=action,
                target=f"{entity.kind.value}:{entity.key}",
                reason=move.reason,
                before=decision_audit(before),
                after=decision_audit(move.decision),
            ),
        )

    def _next_feed(
        self, taken: Sequence[Outcome], standby: BookChange, at: float
    ) -> tuple[PublishedFeed, FeedChange | None]:
        moved = standby != NO_CHANGE or any(outcome.changes_decisions for outcome in taken)
        if not moved:
            return self._feed, None
        decisions = {decision.id: decision for decision in self._book.decisions()}
        pins = {pin.id: pin for pin in self._book.pins()}
        for outcome in taken:
            pins |= {pin.id: pin for pin in (*outcome.pins, *outcome.changed_pins)}
            for pin in outcome.ended_pins:
                pins.pop(pin.id, None)
            decisions |= {move.decision.id: move.decision for move in outcome.decision_moves}
            decisions |= {decision.id: decision for decision in outcome.renewed_decisions}
        joiner_of = self._promoter.shelf.after(standby).joiner_of
        in_force = exclusion_set(decisions.values(), self._place_of, joiner_of)
        would = would_exclude(decisions.values(), self._place_of)
        planned = planned_leaves(pins.values(), decisions.values())
        told = None if planned == self._feed.planned else planned
        added, removed = _told(self._feed.exclusions, in_force)
        if not added and not removed and told is None:
            return PublishedFeed(self._feed.head, in_force, would, planned), None
        head = replace(
            self._feed.head,
            epoch=self._feed.head.epoch + 1,
            count=len(in_force),
            digest=digest(in_force),
        )
        change = FeedChange(head, at, added, removed, told)
        return PublishedFeed(head, in_force, would, planned), change


def _told(
    before: Sequence[Exclusion], after: Sequence[Exclusion]
) -> tuple[tuple[Exclusion, ...], tuple[Exclusion, ...]]:
    """What readers must be told: who came (or has another decision, rung or place), who left.

    A renewed expiry alone is no change. What is both gone and come is told as come: readers
    replace.
    """
    terms = {_terms(one): one for one in after}
    settled = tuple(terms.get(_terms(one), one) for one in before)
    change = difference(settled, after)
    come = {(one.entity_kind, one.entity) for one in change.added}
    left = tuple(o for o in change.removed if (o.entity_kind, o.entity) not in come)
    return change.added, left


def _terms(exclusion: Exclusion) -> tuple[object, ...]:
    one = exclusion
    place = (one.node_id, one.pci_bus_id, one.gpu_index)
    return one.entity_kind, one.entity, one.decision_id, one.rung, one.joiner, *place


def _exclusion_action(before: Decision | None, after: Decision) -> str:
    """What the audit calls a change of an exclusion, "" where nothing changes outside."""
    was, rung = (covers(before), before.rung) if before is not None else (False, after.rung)
    if was != covers(after):
        return "end_exclusion" if was else "exclude"
    return "raise_exclusion" if was and after.rung > rung else ""


def decision_audit(decision: Decision | None) -> dict[str, object] | None:
    """What the audit keeps of a decision."""
    if decision is None:
        return None
    return {
        "id": decision.id,
        "phase": decision.phase.value,
        "rung": decision.rung.name.lower(),
        "decided_by": decision.decided_by,
        "expires_at": decision.expires_at,
        "held_until": None if decision.stay is None else decision.stay.until,
    }
