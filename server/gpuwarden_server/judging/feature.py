"""Makes the judge's parts and joins them; the app starts and stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection

from gpuwarden_server.access.principals import Principal
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.ids import new_id
from gpuwarden_server.decisions.hub import FeedHub
from gpuwarden_server.decisions.pins.repository import read_sources
from gpuwarden_server.decisions.ports import Author, Shown, Windows
from gpuwarden_server.decisions.repository import read_frames
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.inventory.node_places import NodePlaces
from gpuwarden_server.jobs.repository import read_ends_since
from gpuwarden_server.judging.board import VerdictBoard
from gpuwarden_server.judging.book import StoredBook
from gpuwarden_server.judging.cloud_leaves import CloudLeaves, CloudSight
from gpuwarden_server.judging.commands import JudgeDesk
from gpuwarden_server.judging.late_promotion import LatePromoter
from gpuwarden_server.judging.ledger import Ledger
from gpuwarden_server.judging.meters import JudgeMeters
from gpuwarden_server.judging.parts import LedgerKeeper
from gpuwarden_server.judging.pins import Pinning
from gpuwarden_server.judging.ports import FactSink
from gpuwarden_server.judging.promoting import Promoter
from gpuwarden_server.judging.remembering import MemoryKeeper
from gpuwarden_server.judging.renaming import Renamed, Renaming
from gpuwarden_server.judging.repository import (
    read_recent_events,
    read_standing_events,
    read_told_events,
)
from gpuwarden_server.judging.retirement import Retirement
from gpuwarden_server.judging.spares import SpareSight
from gpuwarden_server.judging.standby_desk import SpareDesk, StandbyWords
from gpuwarden_server.judging.troubles import TroubleBook
from gpuwarden_server.judging.words import Words
from gpuwarden_server.judging.worker import Bench, JudgeWorker, failure_teller
from gpuwarden_server.standby.book import StandbyBook
from gpuwarden_server.standby.meters import StandbyMeters
from gpuwarden_server.standby.ports import AddOrder, Keeps, PromoteOrder
from gpuwarden_server.store.database import Database
from gpuwarden_server.streams.hub import REPLAY_FRAMES
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.clocks import booted_at
from gpuwarden_verdict.engine.desk import EventDesk
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.engine.facts import FleetFacts, Patience
from gpuwarden_verdict.engine.judge import Judge, NodeStanding
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.ports import Presences
from gpuwarden_verdict.engine.reasoner import Reasoner
from gpuwarden_verdict.engine.relocation import Relocation
from gpuwarden_verdict.engine.sweep import RiskSource, Sweeper
from gpuwarden_verdict.entities import EntityRef, EntityState
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.job_ends import WINDOW_S
from gpuwarden_verdict.ledger import LedgerReading
from gpuwarden_verdict.policy.case import Hold
from gpuwarden_verdict.policy.document import Decision, Pin
from gpuwarden_verdict.signals import Recovery, Signal
from gpuwarden_verdict.standby import Lease, Spare
from gpuwarden_verdict.tuning.limits import Threshold

NOT_STARTED = "the judge has not started"


@dataclass(frozen=True, slots=True)
class JudgingParts:
    """What judging is built on.

    Attributes:
        state: state.db.
        guarded: Columnar state.
        directory: Nodes and GPUs.
        presences: Who was heard of.
        refusals: Who was refused beside them.
        clock: Time.
        placements: Rules, and where nodes are.
        hub: Readers of the feed.
        moved: Told after each commit of moves of incidents and states.
        risks: The learnt score.
        facts: Who is told in the judging transaction, None for nobody.
        windows: Maintenance windows that go with planned leaves.
        registry: Metrics.
        sweep_interval_s: Seconds between sweeps.
        patience: How long silence of a node means nothing yet.
        stopping: Set when the shutdown begins: streams end then.
        cloud_lead_s: A node leaves so long before its cloud may begin, seconds.
    """

    state: Database
    guarded: GuardedState
    directory: FleetDirectory
    presences: Presences
    refusals: RefusalBook
    clock: Clock
    placements: Placements
    hub: FeedHub
    moved: Callable[[], None]
    risks: RiskSource
    facts: FactSink | None
    windows: Windows
    registry: CollectorRegistry
    sweep_interval_s: float
    patience: Patience
    stopping: asyncio.Event
    cloud_lead_s: float = 300.0


class Judging:
    """The judge as a part of the app, an event sink, and the desk for people's commands.

    Attributes:
        board: What it publishes.
        facts: What it knows of the fleet.
        troubles: Agents' own trouble, and agents that are one too many.
        spares: Spares, and how they do.
    """

    def __init__(self, parts: JudgingParts) -> None:
        self._parts = parts
        self.facts = FleetFacts(parts.directory, parts.presences, parts.clock, parts.patience)
        self.facts.follow_declared(parts.placements.expected)
        self.facts.follow_places(NodePlaces(parts.placements).of)
        self.facts.follow_racks(lambda node_id: parts.placements.placement(node_id).entry.rack)
        self.facts.follow_policy(
            lambda node_id: parts.placements.pool(node_id).name, parts.placements.policy.tuning
        )
        self._keeper, self._parts_keeper = MemoryKeeper(parts.state), LedgerKeeper(parts.state)
        self.board = VerdictBoard(parts.directory, self.facts.contact_of, parts.clock)
        self.troubles = TroubleBook(parts.refusals)
        self.spares = SpareSight(
            *(StandbyBook(), self.board, self.facts, parts.placements, parts.state),
            *(self.parts_on_record, parts.clock),
        )
        self._standby_meters = StandbyMeters(parts.registry)
        self._meters = JudgeMeters(parts.registry)
        self._worker: JudgeWorker | None = None
        self._sweeper: Sweeper | None = None
        self._chronicle: Chronicle | None = None
        self._desk: JudgeDesk | None = None
        self._spare_desk: SpareDesk | None = None
        self._words: Words | None = None
        self._closer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is live, publish it, open the feed, and judge what was not judged yet."""
        parts = self._parts
        now = parts.clock.now()
        writer = parts.state.writer
        book = await asyncio.wrap_future(writer.submit(lambda writes: StoredBook(writes, now)))
        self.facts.follow_retired(lambda: book.retired)
        self.facts.follow_repairs(lambda: book.repaired_at)
        pools = PoolBook(parts.placements, book, self.facts.census, self.facts.seat_of)
        desk = EventDesk(book, self.facts, parts.guarded, self.troubles)
        self._keeper.load()
        self._parts_keeper.load()
        chronicle = self._chronicle = Chronicle(parts.directory, self._parts_keeper.ledger)
        chronicle.recall(book.incidents())
        self._words = Words(parts.state, chronicle)
        self._words.recall(now)
        self.facts.follow_job_ends(chronicle.note_job_end)
        with parts.state.read() as connection:
            self._recall(connection, book, desk)
            self.spares.book.load(connection)
            frames = read_frames(connection, book.head.feed_id, REPLAY_FRAMES)
        bench, pinning = self._bench(book, pools, desk, chronicle)
        self.board.fill(book)
        self.board.publish(bench.ledger.feed)
        parts.hub.start(book.head, frames)
        self._closer = asyncio.create_task(self._close_streams())
        self._worker = JudgeWorker(bench, parts.clock, parts.sweep_interval_s, self._meters)
        renaming = Renaming(
            *(book, desk, self.facts, self.troubles, self.board, pools, self._keeper), chronicle
        )
        self._desk = JudgeDesk(
            self._worker,
            book,
            pools,
            bench.retirement,
            renaming,
            pinning,
            self.facts.contact_of,
            bench.reasoner.conclude,
        )
        words = StandbyWords(bench.promoter, book, self._desk.approved)
        self._spare_desk = SpareDesk(words, self._desk)
        self._worker.start()

    async def stop(self) -> None:
        """End after the pass under way."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.stop)
            now = self._parts.clock.now()
            saved = [keeper.save(now) for keeper in (self._keeper, self._parts_keeper)]
            await asyncio.wait([asyncio.wrap_future(one) for one in saved])
        self._parts.hub.close()
        if self._closer is not None:
            self._closer.cancel()

    async def _close_streams(self) -> None:
        # The shutdown waits for open requests before it stops the parts: streams must end first.
        await self._parts.stopping.wait()
        self._parts.hub.close()

    def probe(self) -> str | None:
        """Why judging does not go on, None where it does."""
        return NOT_STARTED if self._worker is None else self._worker.trouble()

    def sweep_age_s(self) -> float | None:
        """Seconds since the fleet was last looked over; None before the first time."""
        return None if self._worker is None else self._worker.sweep_age_s()

    def thresholds(self) -> list[Threshold]:
        """Limits in force, of what was seen at the latest sweep; none before the first."""
        return [] if self._sweeper is None else self._sweeper.thresholds()

    def feature_scene(self) -> FeatureScene:
        """What features are made of now, for readers of any thread; sweeps have their own.

        Nothing that sweeps remember is in it.
        """
        parts = self._parts
        pools = {one: parts.placements.pool(one).name for one in self.facts.node_ids()}
        return FeatureScene(
            parts.guarded.snapshot({}), self.facts.fleet_context(pools), self.parts_on_record()
        )

    def parts_on_record(self) -> LedgerReading:
        """The ledger of parts as of the latest sweep; empty before the start."""
        return LedgerReading() if self._chronicle is None else self._chronicle.latest

    def events_stored(self, events: Sequence[StoredEvent]) -> None:
        """Events are durable: judge them."""
        if self._worker is not None:
            self._worker.events_stored(events)

    def look_soon(self) -> None:
        """A value that announces a fault has changed: sweep soon."""
        if self._worker is not None:
            self._worker.look_soon()

    def take_word(self, incident_id: str) -> None:
        """A person said what an incident was; before the start nothing is lost: it is stored."""
        if self._words is not None and self._worker is not None:
            self._words.follow(self._worker, incident_id)

    def acknowledge(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """See `IncidentDesk`."""
        return self._started().acknowledge(incident_id, name, key_id, reason)

    def clear(self, incident_id: str, name: str, key_id: str | None, reason: str) -> Incident:
        """See `IncidentDesk`."""
        return self._started().clear(incident_id, name, key_id, reason)

    def revoke(self, decision_id: str, author: Author) -> Decision:
        """See `DecisionDesk`."""
        return self._started().revoke(decision_id, author)

    def approve(self, decision_id: str, author: Author, shown: Shown | None = None) -> Decision:
        """See `DecisionDesk`."""
        return self._started().approve(decision_id, author, shown)

    def hold(self, decision_id: str, until: float, author: Author) -> Decision:
        """See `DecisionDesk`."""
        return self._started().hold(decision_id, until, author)

    def let_go(self, decision_id: str, author: Author) -> Decision:
        """See `DecisionDesk`."""
        return self._started().let_go(decision_id, author)

    def begin_repair(self, target: EntityRef, author: Author) -> EntityState:
        """See `DecisionDesk`."""
        return self._started().begin_repair(target, author)

    def retire_node(self, node_id: str, author: Author) -> EntityState:
        """See `DecisionDesk`; what its last readings said is forgotten too."""
        state = self._started().retire_node(node_id, author)
        with self._parts.guarded.lock:
            self._parts.guarded.state.retire_node(node_id)
        return state

    def rename_node(self, old: str, new: str, author: Author, elsewhere: Renamed) -> Future[object]:
        """Call a node something else; see `Renaming`."""
        return self._started().rename_node(old, new, author, elsewhere)

    def add(self, order: AddOrder, caller: Principal) -> Spare:
        """See `StandbyDesk`."""
        return self._spares_started().add(order, caller)

    def remove(self, node_id: str, reason: str, caller: Principal) -> Spare:
        """See `StandbyDesk`."""
        return self._spares_started().remove(node_id, reason, caller)

    def promote(self, order: PromoteOrder, caller: Principal) -> Lease:
        """See `StandbyDesk`."""
        return self._spares_started().promote(order, caller)

    def release(self, node_id: str, keep: Keeps, reason: str, caller: Principal) -> Lease:
        """See `StandbyDesk`."""
        return self._spares_started().release(node_id, keep, reason, caller)

    def take_findings(self, signals: Sequence[Signal], recoveries: Sequence[Recovery]) -> None:
        """Take evidence over that a diagnosis gives; committed on return."""
        self._started().take_findings(signals, recoveries)

    def _spares_started(self) -> SpareDesk:
        if self._spare_desk is None:
            raise RuntimeError(NOT_STARTED)
        return self._spare_desk

    def set_pins(
        self, made: Sequence[Pin], author: Author, *, checks_by_policy: bool = False
    ) -> list[Pin]:
        """See `PinDesk`."""
        return self._started().set_pins(made, author, checks_by_policy=checks_by_policy)

    def end_pin(self, pin_id: str, author: Author) -> Pin:
        """See `PinDesk`."""
        return self._started().end_pin(pin_id, author)

    def _started(self) -> JudgeDesk:
        if self._desk is None:
            raise RuntimeError(NOT_STARTED)
        return self._desk

    def _recall(self, connection: Connection, book: StoredBook, desk: EventDesk) -> None:
        """What detectors ask about, from events that were judged before the restart."""
        for node_id, event, received_at in read_standing_events(connection):
            self.troubles.note(node_id, event)
            at = booted_at(event, received_at)
            if at is not None:
                self.facts.note_boots({node_id: at})
        for ended in read_ends_since(connection, self._parts.clock.now() - WINDOW_S):
            for node_id in ended.nodes:
                self.facts.note_job_end(node_id, ended.end)
        told = read_told_events(connection, book.told_events(), book.position)
        recent = read_recent_events(connection, book.position)
        by_row = {stored.row: stored for stored in (*told, *recent)}
        desk.recall(by_row[row] for row in sorted(by_row))

    def _bench(
        self, book: StoredBook, pools: PoolBook, desk: EventDesk, chronicle: Chronicle
    ) -> tuple[Bench, Pinning]:
        parts, facts = self._parts, self.facts

        def standing_of(node_id: str) -> NodeStanding:
            hold = desk.hold_of(node_id, facts.presence(node_id), parts.clock.now())
            return NodeStanding(facts.contact_of(node_id), hold, facts.maintenance_of(node_id))

        self._sweeper = Sweeper(
            *(parts.guarded, facts, book, pools, parts.risks, self._keeper.memory), chronicle
        )
        reasoner = Reasoner(
            book=book,
            desk=desk,
            judge=Judge(book, pools, standing_of, new_id, parts.risks),
            sweeper=self._sweeper,
            relocation=Relocation(book, parts.directory),
            chronicle=chronicle,
            failed=failure_teller(self._meters),
        )
        promoter = Promoter(book, self.spares, self._standby_meters)
        pinning = Pinning(book, reasoner.judge.reassess, parts.windows, pools.pool)
        bench = Bench(
            state=parts.state,
            book=book,
            reasoner=reasoner,
            keeper=self._keeper,
            parts=self._parts_keeper,
            ledger=Ledger(parts.state, book, facts.place, parts.facts, promoter),
            board=self.board,
            readers=parts.hub,
            moved=parts.moved,
            pools=pools,
            retirement=Retirement(book, facts),
            promoter=promoter,
            late=LatePromoter(promoter),
            clouds=self._clouds(pinning, pools, lambda node_id: standing_of(node_id).hold),
        )
        with parts.state.read() as connection:
            bench.clouds.note(read_recent_events(connection, book.position))
        return bench, pinning

    def _clouds(
        self, pinning: Pinning, pools: PoolBook, hold_of: Callable[[str], Hold]
    ) -> CloudLeaves:
        def made_for(node_id: str) -> frozenset[str]:
            with self._parts.state.read() as connection:
                return read_sources(connection, node_id)

        sight = CloudSight(
            hold_of, lambda node_id: pools.pool(node_id).mode, made_for, self._parts.cloud_lead_s
        )
        return CloudLeaves(pinning, sight, self._meters)
