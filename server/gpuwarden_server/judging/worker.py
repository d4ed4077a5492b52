"""The serial worker: events first, then people's commands, then the sweep."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Thread
from typing import Protocol

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from gpuwarden_server.access.domain import AuditEntry
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.ingest.repository import events_after
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_server.judging.book import StoredBook
from gpuwarden_server.judging.late_promotion import LatePromoter
from gpuwarden_server.judging.ledger import Committed, Judgement, Ledger
from gpuwarden_server.judging.meters import JudgeMeters
from gpuwarden_server.judging.parts import LedgerKeeper
from gpuwarden_server.judging.ports import FeedReaders
from gpuwarden_server.judging.promoting import Promoter
from gpuwarden_server.judging.remembering import MemoryKeeper
from gpuwarden_server.judging.retirement import Retirement
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.words import driver_words
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.engine.domain import Key, Outcome, key_of
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.engine.failures import SWEEP_STAGE, Failure
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.reasoner import Reasoner
from gpuwarden_verdict.engine.relocation import Departure
from gpuwarden_verdict.standby import NO_CHANGE, BookChange
from gpuwarden_wire.events import EventKind

EVENTS_A_PASS = 500
RETRY_S = 0.5
SHORTEST_REST_S = 0.5
SWEEP_SHARE = 0.05
"""Of the time, at most, that sweeps take where they come more often than they must."""
ASKED_REST_S = 0.05
ASKED_SHARE = 0.2
"""The same where a value that announces a fault asks for one."""
SWEEP_MEMORY = "sweep_memory"
PART_LEDGER = "part_ledger"
"""What the saving of what sweeps remember, and of the ledger, is called where it fails."""
_log = structlog.get_logger(__name__)

CommandWork = Callable[[float], "Concluded"]
"""Given the time, what a person's command amounts to; runs in the judge's thread."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """What a command amounts to.

    Attributes:
        outcomes: To be committed together.
        audits: What the person did, before and after.
        answer: What the caller gets after the commit.
        first: Written before the outcomes, in the same transaction: all of them or nothing then.
        committed: Called after the commit, before the outcomes become true in memory.
        standby: What changes of the book of spares.
    """

    outcomes: tuple[Outcome, ...]
    audits: tuple[AuditEntry, ...]
    answer: object
    first: Callable[[Connection], None] | None = None
    committed: Callable[[], None] | None = None
    standby: BookChange = NO_CHANGE


@dataclass(frozen=True, slots=True)
class DueLeaves:
    """Leaves of one node that follow what its cloud announced.

    Attributes:
        stored: The announcement.
        concluded: What it amounts to.
    """

    stored: StoredEvent
    concluded: Concluded


class LeaveMaker(Protocol):
    """Makes planned leaves of what clouds announce."""

    def note(self, events: Iterable[StoredEvent]) -> None:
        """Events came; most announce nothing."""
        ...

    def due(self, now: float) -> list[DueLeaves]:
        """What is to be committed; asked again, it is not told again."""
        ...


@dataclass(frozen=True, slots=True)
class _Command:
    work: CommandWork
    future: Future[object]


@dataclass(frozen=True, slots=True)
class Bench:
    """The parts a worker works with; all of them belong to its thread from then on.

    Attributes:
        state: state.db, for reading events.
        book: What is true now.
        reasoner: From events and sweeps to conclusions.
        keeper: Stores what sweeps remember.
        parts: Stores what is on record of parts.
        ledger: Writes conclusions.
        board: Shows them.
        readers: Readers of the feed.
        moved: Told after each commit of moves: others follow the tables they stand in.
        pools: Policy and what is out.
        retirement: Who left the fleet, and who is back.
        promoter: Leases spares.
        late: Leases those that become able later.
        clouds: Makes planned leaves of what clouds announce.
    """

    state: Database
    book: StoredBook
    reasoner: Reasoner
    keeper: MemoryKeeper
    parts: LedgerKeeper
    ledger: Ledger
    board: VerdictBoard
    readers: FeedReaders
    moved: Callable[[], None]
    pools: PoolBook
    retirement: Retirement
    promoter: Promoter
    late: LatePromoter
    clouds: LeaveMaker


def failure_teller(meters: JudgeMeters) -> Callable[[Failure], None]:
    """Counts and logs what could not be judged, so that the pass goes on with the rest.

    Sweeps come often: of each of their parts a kind of error is logged once.
    """
    logged: set[tuple[str, type[Exception]]] = set()

    def tell(failure: Failure) -> None:
        meters.failures.labels(stage=failure.stage).inc()
        if failure.stage == SWEEP_STAGE:
            kind = failure.entity, type(failure.error)
            if kind not in logged:
                logged.add(kind)
                _log.error(
                    "judge_sweep_failed",
                    worker="judge",
                    detector=failure.entity,
                    exc_info=failure.error,
                )
            return
        _log.error(
            "judge_event_failed" if failure.event_id else "judge_entity_failed",
            worker="judge",
            entity=failure.entity,
            event_id=failure.event_id,
            exc_info=failure.error,
        )

    return tell


class JudgeWorker:
    """One thread; alone it writes incidents, decisions, states and the feed."""

    def __init__(
        self, bench: Bench, clock: Clock, sweep_interval_s: float, meters: JudgeMeters
    ) -> None:
        """Make a worker; `start` makes it run.

        Args:
            bench: Its parts.
            clock: Time.
            sweep_interval_s: Longest time between the starts of sweeps, seconds.
            meters: Figures.
        """
        self._bench = bench
        self._clock = clock
        self._interval_s = sweep_interval_s
        self._meters = meters
        self._wake = Event()
        self._stopping = False
        self._trouble: str | None = None
        self._swept_at: float | None = None
        self._asked = False
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._thread = Thread(target=self._run, name="judge", daemon=True)

    def start(self) -> None:
        """Start; what was stored and not judged is judged first."""
        self._wake.set()
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the pass under way; what is stored is judged by the next process."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        while not self._commands.empty():
            command = self._commands.get()
            command.future.set_exception(WriteFailed("the server is stopping"))

    def events_stored(self, events: Sequence[StoredEvent]) -> None:
        """Events are durable: look at them. Never blocks.

        They are read from the table, from the judged position on: one path for the running server
        and for a restart, and rows come in order whatever the order of these calls.
        """
        self._wake.set()

    def look_soon(self) -> None:
        """A value that announces a fault has changed: sweep without waiting. Never blocks."""
        self._asked = True
        self._wake.set()

    def submit(self, work: CommandWork) -> Future[object]:
        """Run a person's command in turn; the answer comes after its commit."""
        future: Future[object] = Future()
        self._commands.put(_Command(work, future))
        self._wake.set()
        return future

    def trouble(self) -> str | None:
        """Why judging does not go on, None where it does."""
        if self._trouble is not None:
            return self._trouble
        return None if self._thread.is_alive() else "the judge's thread has ended"

    def sweep_age_s(self) -> float | None:
        """Seconds since the fleet was last looked over to the end; None before the first time."""
        swept_at = self._swept_at
        return None if swept_at is None else self._clock.monotonic() - swept_at

    def _run(self) -> None:
        # The first sweep waits: agents must have had the time to report to this process.
        next_sweep = next_asked = self._clock.monotonic() + self._interval_s
        while not self._stopping:
            due = next_asked if self._asked else next_sweep
            self._wake.wait(max(0.0, due - self._clock.monotonic()))
            self._wake.clear()
            try:
                self._judge_new_events()
                self._run_commands()
                began = self._clock.monotonic()
                if began >= (next_asked if self._asked else next_sweep):
                    next_sweep = next_asked = began + self._interval_s
                    self._asked = False
                    self._sweep()
                    took_s = self._clock.monotonic() - began
                    next_sweep = began + self._rest_s(took_s, SHORTEST_REST_S, SWEEP_SHARE)
                    next_asked = began + self._rest_s(took_s, ASKED_REST_S, ASKED_SHARE)
                self._note_trouble(None)
            except (WriteFailed, SQLAlchemyError, TimeoutError) as error:
                # Nothing was committed and nothing is lost: the same events are read again.
                self._note_trouble(f"the database cannot be used: {driver_words(error)}")
                self._pause()
            except Exception as error:
                self._meters.failures.labels(stage="pass").inc()
                _log.error("judge_pass_failed", worker="judge", exc_info=error)
                self._pause()

    def _rest_s(self, took_s: float, least_s: float, share: float) -> float:
        """Seconds from the start of a sweep to that of the next: what costs little comes often."""
        return min(self._interval_s, max(least_s, took_s / share))

    def _pause(self) -> None:
        if not self._stopping:
            self._wake.wait(RETRY_S)
            self._wake.set()

    def _note_trouble(self, trouble: str | None) -> None:
        if trouble is not None and self._trouble is None:
            _log.error("judge_stopped", worker="judge", reason=trouble)
        elif trouble is None and self._trouble is not None:
            _log.info("judge_recovered", worker="judge")
        self._trouble = trouble

    def _judge_new_events(self) -> frozenset[Key]:
        """Judge what is stored after the judged position; the targets it was about."""
        touched: set[Key] = set()
        while not self._stopping:
            with self._bench.state.read() as connection:
                events = events_after(connection, self._bench.book.position, EVENTS_A_PASS)
            if not events:
                break
            touched |= self._judge_events(events)
        return frozenset(touched)

    def _judge_events(self, events: Sequence[StoredEvent]) -> set[Key]:
        now = self._clock.now()
        self._take_back(self._bench.retirement.senders(events), now)
        inventoried = {e.node_id for e in events if e.event.kind is EventKind.INVENTORY}
        if inventoried:
            self._bench.pools.recount()
            self._bench.reasoner.chronicle.note_inventory(inventoried, now)
            self._relocate(self._bench.reasoner.relocation.moved_into(inventoried, now), now)
        findings = self._bench.reasoner.findings_of(events, now)
        outcomes = self._bench.reasoner.conclude(findings.values(), now)
        self._bench.clouds.note(events)
        self._follow_clouds(now)
        committed = self._bench.ledger.commit(Judgement(outcomes, now, position=events[-1].row))
        self._bench.book.position = events[-1].row
        self._note_trouble(None)  # under load the pass goes on for long
        self._take_over(committed)
        for node_id in inventoried:  # other GPUs are in their verdicts now
            self._bench.board.mark(node_id)
        published_at = self._clock.now()
        for stored in events:
            self._meters.event_delay.observe(max(0.0, published_at - stored.received_at))
        self._meters.events.inc(len(events))
        return set(findings)

    def _follow_clouds(self, now: float) -> None:
        """Planned leaves that clouds ask for, before what is judged with them is on record."""
        waiting = self._bench.clouds.due(now)
        for place, due in enumerate(waiting):
            one = due.concluded
            judgement = Judgement(one.outcomes, now, audits=one.audits, first=one.first)
            try:
                committed = self._bench.ledger.commit(judgement)
            except (WriteFailed, SQLAlchemyError, TimeoutError):
                self._bench.clouds.note([each.stored for each in waiting[place:]])
                raise
            if one.committed is not None:
                one.committed()
            self._take_over(committed)

    def _take_back(self, node_ids: frozenset[str], now: float) -> None:
        """Retired nodes that send again are of the fleet before anything is judged about them."""
        back = self._bench.retirement.come_back(node_ids, now)
        if not back.outcomes:
            return
        self._take_over(
            self._bench.ledger.commit(Judgement(back.outcomes, now, audits=back.audits))
        )
        self._bench.pools.recount()
        nodes = [outcome.target.key for outcome in back.outcomes]
        _log.info("nodes_returned", worker="judge", node_ids=nodes)

    def _relocate(self, moved: tuple[Departure, ...], now: float) -> None:
        """GPUs that were put into other nodes are there before anything is judged about them."""
        bench = self._bench
        outcomes = [one.outcome for one in moved]
        outcomes += [
            o.outcome for o in bench.reasoner.relocation.told_wrongly(bench.ledger.feed.exclusions)
        ]
        if not outcomes:
            return
        self._take_over(bench.ledger.commit(Judgement(tuple(outcomes), now)))
        if not moved:
            return
        bench.pools.recount()
        for one in moved:
            bench.board.mark(one.former)  # it may be usable again
        told = {one.outcome.target.key: one.outcome.target.node_id for one in moved}
        _log.info("gpus_moved", worker="judge", to_nodes=told)

    def _take_over(self, committed: Committed) -> None:
        """What was committed becomes true, is shown, and is told."""
        bench = self._bench
        bench.book.apply(committed.outcomes)
        bench.reasoner.chronicle.note(committed.outcomes)
        bench.book.head = committed.feed.head
        bench.promoter.taken(committed.standby)
        for outcome, reason in committed.refused:
            self._meters.refused.inc()
            _log.error("judge_row_refused", entity=outcome.target.key, reason=reason)
        if committed.refused:
            bench.pools.recount()  # it was counted as decided
        # The whole set first, then its change: who hears of the change finds it in the set.
        bench.board.show(bench.book, [key_of(outcome.target) for outcome in committed.outcomes])
        bench.board.publish(committed.feed)
        if any(outcome.has_moves for outcome in committed.outcomes):
            bench.moved()
        if committed.change is not None:
            bench.readers.publish(committed.change)
            _log.info(
                "exclusions_changed",
                epoch=committed.feed.head.epoch,
                count=committed.feed.head.count,
                added=[exclusion.entity for exclusion in committed.change.added],
                removed=[exclusion.entity for exclusion in committed.change.removed],
            )

    def _run_commands(self) -> None:
        while not self._stopping and not self._commands.empty():
            command = self._commands.get()
            try:
                concluded = command.work(self._clock.now())
                judgement = Judgement(
                    concluded.outcomes,
                    self._clock.now(),
                    audits=concluded.audits,
                    first=concluded.first,
                    standby=concluded.standby,
                )
                committed = self._bench.ledger.commit(judgement)
                if concluded.committed is not None:
                    concluded.committed()
                self._take_over(committed)
                if committed.refused:
                    raise WriteFailed(committed.refused[0][1])
            except Exception as error:
                command.future.set_exception(error)
            else:
                command.future.set_result(concluded.answer)

    def _sweep(self) -> None:
        began, now = self._clock.monotonic(), self._clock.now()
        bench = self._bench
        self._take_back(bench.retirement.heard(), now)
        self._relocate(bench.reasoner.relocation.moved(now), now)
        bench.pools.recount()
        self._move_leases(now)
        self._follow_clouds(now)
        result = bench.reasoner.sweeper.look(now, bench.reasoner.failed)
        self._save_memory(now)
        touched = self._judge_new_events()
        bench.book.risks = {k: r for k, r in result.risks.items() if k not in touched}
        bench.board.show_risks(bench.book.risks)
        self._meters.sweep_dropped.inc(len(result.findings.keys() & touched))
        outcomes = bench.reasoner.conclude_sweep(result, touched, now)
        if outcomes:
            self._take_over(bench.ledger.commit(Judgement(outcomes, now)))
        self._swept_at = self._clock.monotonic()
        self._meters.sweep.observe(self._swept_at - began)
        self._set_gauges()

    def _move_leases(self, now: float) -> None:
        # A lease that ended is true before a spare is looked for.
        for look in (self._bench.promoter.expired, self._bench.late.due):
            change, audits = look(now)
            if audits:
                moved = Judgement((), now, audits=audits, standby=change)
                self._take_over(self._bench.ledger.commit(moved))

    def _save_memory(self, now: float) -> None:
        for keeper, name in ((self._bench.keeper, SWEEP_MEMORY), (self._bench.parts, PART_LEDGER)):
            try:
                keeper.save_if_due(now)
            except Exception as error:  # what is not stored is tried again; what is seen must act
                self._bench.reasoner.failed(Failure(SWEEP_STAGE, name, "", error))

    def _set_gauges(self) -> None:
        book = self._bench.book
        self._meters.incidents.clear()
        for fault_class, count in Counter(i.fault_class.value for i in book.incidents()).items():
            self._meters.incidents.labels(fault_class=fault_class).set(count)
        self._meters.decisions.clear()
        for phase, count in Counter(d.phase.value for d in book.decisions()).items():
            self._meters.decisions.labels(phase=phase).set(count)
        self._meters.exclusions.set(book.head.count)
        self._meters.epoch.set(book.head.epoch)
        self._bench.promoter.meters.show(self._bench.promoter.shelf)
