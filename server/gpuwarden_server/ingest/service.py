"""Taking batches: claim, order and replay rules; events made durable, telemetry applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import inf
from typing import TypeVar

import structlog
from sqlalchemy import Connection as DatabaseConnection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest import repository
from gpuwarden_server.ingest.checks import check_batch, check_tables, without_nul
from gpuwarden_server.ingest.lane import Queued, TelemetryLane, Ticket
from gpuwarden_server.ingest.meters import IngestMeters
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.ingest.ports import EventSink, NodeDirectory, TelemetryKeeper, VerdictSource
from gpuwarden_server.ingest.refusals import RefusalBook
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.sessions import Connection, NodeSession, Sessions, SpoolSession
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.ingest.storing import store_events
from gpuwarden_server.ingest.telemetry import (
    apply_plan,
    check_entities,
    joined_plan,
    note_urgent,
    remember_tables,
)
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.engine.arrivals import EventsToStore
from gpuwarden_verdict.engine.clocks import clock_after
from gpuwarden_verdict.engine.events import StoredEvent
from gpuwarden_verdict.engine.sequences import Arrival, SequenceLedger
from gpuwarden_verdict.engine.spools import (
    DOOR_SPOOL,
    TOLD_SPOOL,
    Claim,
    Standing,
    claim_of,
    standing_beside_door,
)
from gpuwarden_verdict.engine.telemetry import plan_telemetry
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.codec import content_digest
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.schema import Schema

T = TypeVar("T")
_DIGEST_HEX = 15  # 60 bits of the SHA-256: an integer that any JSON reader keeps exactly
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IngestParts:
    """What taking batches works on.

    Attributes:
        database: state.db.
        state: Columnar state of the fleet.
        sessions: What is remembered of each node.
        names: What nodes were called before.
        refusals: Who was refused because another machine speaks for the node.
        book: Known schemas.
        directory: Nodes and GPUs.
        sink: Takes stored events.
        keeper: Takes telemetry.
        verdicts: Gives the verdicts that ride along.
        clock: Time.
        meters: Counters.
        future_tolerance_s: How far an agent's clock may run ahead, seconds.
    """

    database: Database
    state: GuardedState
    sessions: Sessions
    names: FormerNames
    refusals: RefusalBook
    book: SchemaBook
    directory: NodeDirectory
    sink: EventSink
    keeper: TelemetryKeeper
    verdicts: VerdictSource
    clock: Clock
    meters: IngestMeters
    future_tolerance_s: float


class IngestService:
    """Takes decoded batches, on the event loop; batches of one node one after the other.

    Attributes:
        lane: Takes those that hold no surprise, by the same rules.
    """

    def __init__(self, parts: IngestParts) -> None:
        self._parts = parts
        self._applied = parts.meters.batches.labels(Stream.TELEMETRY, "applied")
        self.lane = TelemetryLane(
            parts.state,
            parts.sessions,
            parts.book,
            parts.directory,
            parts.clock,
            parts.meters,
            self,
        )
        parts.meters.nodes.set_function(lambda: len(parts.sessions.items()))

    async def take(self, batch: Batch, connection: Connection) -> Acknowledgement:
        """Apply one batch, all of it or nothing.

        Args:
            batch: From an agent that may speak for its node.
            connection: Client address and port: its first batch gets the node's verdict.

        Raises:
            ProblemError: 400, 403, 409, 413, 428: nothing was applied; 503 where the disk failed.
        """
        batch = without_nul(batch)
        check_batch(batch)
        with self._parts.meters.seconds.labels(batch.stream).time():
            while (taken := await self._take_in_quiet(batch, connection)) is None:
                pass  # the node was renamed while the batch waited for its turn
            return taken

    async def _take_in_quiet(self, sent: Batch, connection: Connection) -> Acknowledgement | None:
        batch = self._parts.names.under_present_name(sent, self._parts.sessions)
        async with self.quiet(batch.node_id) as session:
            if session is not self._parts.sessions.find(batch.node_id):
                return None
            return await self._take(batch, session, connection)

    @asynccontextmanager
    async def quiet(self, node_id: str) -> AsyncIterator[NodeSession]:
        """A time in which nothing is taken of a node, and nothing waits in the lane.

        The node may have been renamed before it began: its session is another's then.
        """
        session = self._parts.sessions.of(node_id)
        async with session.lock:
            await self.lane.settled(session)
            yield session

    def present_name(self, node_id: str) -> str:
        """What a node is called now."""
        return self._parts.names.present(node_id)

    def offer(self, batch: Batch, ticket: Ticket) -> bool:
        """Give a batch to the fast lane; False where `take` must have it: nothing was done."""
        return self.lane.offer(
            batch, ticket, self._parts.clock.now() + self._parts.future_tolerance_s
        )

    def digest_of(self, batch: Batch) -> int:
        """See `LaneRules`."""
        return int(content_digest(batch)[:_DIGEST_HEX], 16)

    def note_applied(self, item: Queued, now: float) -> None:
        """See `LaneRules`."""
        ledger = item.session.spools[item.batch.spool_id].ledgers[Stream.TELEMETRY]
        self._parts.keeper.note(item.batch.node_id, item.tables)
        if note_urgent(item.known, item.tables):
            self._parts.sink.look_soon()
        self._note_sequence(item.batch, ledger, item.digest, now)
        item.session.telemetry_dirty = True

    def conclude(self, item: Queued) -> Acknowledgement:
        """See `LaneRules`."""
        self._applied.inc()
        self._note_presence(item.batch, item.session, Claim.LIVE)
        spool = item.session.spools[item.batch.spool_id]
        return self._acknowledge(
            item.batch, item.session, spool, item.ticket.connection, Arrival.NEW
        )

    async def tell(self, node_id: str, event: Event) -> bool:
        """Store what somebody else says of a node that is known.

        It is no word of the node's own: neither who speaks for it nor when it was heard changes.

        Returns:
            Whether the event is news: its natural id was not there yet.

        Raises:
            ProblemError: 400, it is no event; 503 where the disk failed.
        """
        parts = self._parts
        while True:
            present = self.present_name(node_id)
            async with self.quiet(present) as session:
                if session is parts.sessions.find(present):
                    stored = await self._store_told(present, session, event)
                    break
        parts.meters.events.labels("stored" if stored else "duplicate").inc()
        if stored:
            parts.sink.events_stored(stored)
        return bool(stored)

    async def _store_told(
        self, node_id: str, session: NodeSession, event: Event
    ) -> list[StoredEvent]:
        parts, now = self._parts, self._parts.clock.now()
        batch = Batch(
            version=WIRE_VERSION,
            node_id=node_id,
            spool_id=TOLD_SPOOL,
            stream=Stream.EVENTS,
            seq=1,
            boot_id=session.boot_id,
            agent_version="",
            sent_at=now,
            events=(event,),
        )
        batch = without_nul(batch)
        check_batch(batch)
        draft = parts.directory.draft(node_id, now)
        latest = now + parts.future_tolerance_s
        work = EventsToStore(batch, now, latest, is_history=False, knows_boot=True)
        return await self._write(lambda connection: store_events(connection, work, draft))

    async def _take(
        self, batch: Batch, session: NodeSession, connection: Connection
    ) -> Acknowledgement:
        claim = self._claim(batch, session)
        schemas = self._parts.book.of_batch(batch)
        news = self._parts.book.news_of(batch)
        check_tables(batch.tables, schemas)
        check_entities(batch, schemas, session)
        digest = self.digest_of(batch)
        spool = session.spools.get(batch.spool_id)
        arrival = spool.ledgers[batch.stream].judge(batch.seq, digest) if spool else Arrival.NEW
        if arrival is Arrival.CONFLICT:
            await self._refuse_conflict(batch)
        spool = await self._introduce(batch, session, claim, news)
        if arrival is Arrival.REPLAY:
            outcome = "replayed"
        else:
            outcome = "history" if claim is Claim.HISTORY else "applied"
            await self._apply(batch, session, spool, claim, schemas, digest)
        self._parts.meters.batches.labels(batch.stream, outcome).inc()
        self._note_presence(batch, session, claim)
        return self._acknowledge(batch, session, spool, connection, arrival)

    def _claim(self, batch: Batch, session: NodeSession) -> Claim:
        spool = session.spools.get(batch.spool_id)
        standing = standing_beside_door(
            batch.spool_id,
            spool.standing if spool else None,
            session.live_spool,
            session.newest_agent_spool,
        )
        from_door = session.live_spool == DOOR_SPOOL and batch.spool_id != DOOR_SPOOL
        claim = claim_of(
            standing,
            bool(session.live_spool),
            inf if from_door else self._parts.clock.monotonic() - session.heard_at,
            session.interval_s,
        )
        if claim is not Claim.REFUSED:
            return claim
        if session.refused_spool != batch.spool_id:
            _log.warning(
                "node_claimed",
                node_id=batch.node_id,
                live_spool=session.live_spool,
                refused_spool=batch.spool_id,
            )
        session.refused_spool = batch.spool_id
        self._parts.refusals.note_claim(batch.node_id, batch.spool_id, session.heard_at)
        raise ProblemError(
            409,
            "node_claimed",
            f"spool {session.live_spool} speaks for node {batch.node_id} and is live; "
            f"spool {batch.spool_id} was refused",
            "Stop the second agent of this name; if the first is gone, this one takes over after "
            "3 intervals of silence.",
        )

    async def _refuse_conflict(self, batch: Batch) -> None:
        now = self._parts.clock.now()
        if self._parts.refusals.note_conflict(batch.node_id, batch.spool_id):
            _log.warning("batches_conflict", node_id=batch.node_id, spool=batch.spool_id)
        await self._write(lambda connection: repository.keep_conflict(connection, batch, now))
        raise ProblemError(
            409,
            "sequence_conflict",
            f"{batch.stream} {batch.seq} of spool {batch.spool_id} was applied with other content",
            "The agent sets the batch aside; a copied spool folder makes this: delete the copy.",
        )

    async def _introduce(
        self, batch: Batch, session: NodeSession, claim: Claim, news: list[Schema]
    ) -> SpoolSession:
        """Make what a batch brings for the first time durable: node, spool, schemas."""
        is_new = claim in (Claim.FIRST, Claim.TAKES_OVER)
        contact = (batch.agent_version, batch.interval_s)
        is_news = claim is not Claim.HISTORY and self._parts.directory.contact_is_news(
            batch.node_id, *contact
        )
        if not (is_new or is_news or news):
            return session.spools[batch.spool_id]
        now = self._parts.clock.now()
        draft = self._parts.directory.draft(batch.node_id, now)
        if is_news:
            draft.note_contact(*contact)

        def write(connection: DatabaseConnection) -> list[str]:
            draft.save(connection)
            repository.insert_schemas(connection, news, now)
            if not is_new:
                return []
            return repository.make_live(connection, batch.node_id, batch.spool_id, now)

        forgotten = await self._write(write)
        draft.adopt()
        self._parts.book.learn(news)
        if is_new:
            self._enthrone(batch, session, claim, forgotten)
        return session.spools[batch.spool_id]

    def _enthrone(
        self, batch: Batch, session: NodeSession, claim: Claim, forgotten: list[str]
    ) -> None:
        if claim is Claim.TAKES_OVER:
            _log.info(
                "spool_took_over",
                node_id=batch.node_id,
                spool=batch.spool_id,
                former=session.live_spool,
            )
        for spool_id in forgotten:
            session.spools.pop(spool_id, None)
        for spool in session.spools.values():
            spool.standing = Standing.SUPERSEDED
        spool = session.spools.setdefault(batch.spool_id, SpoolSession(Standing.LIVE))
        spool.standing = Standing.LIVE
        session.live_spool = batch.spool_id
        session.refused_spool = ""
        self._parts.refusals.end_claims(batch.node_id)

    async def _apply(
        self,
        batch: Batch,
        session: NodeSession,
        spool: SpoolSession,
        claim: Claim,
        schemas: Mapping[str, Schema],
        digest: int,
    ) -> None:
        match batch.stream:
            case Stream.EVENTS:
                await self._apply_events(batch, session, spool, claim, digest)
            case Stream.TELEMETRY:
                await self._apply_telemetry(batch, session, spool, claim, schemas, digest)

    async def _apply_events(
        self,
        batch: Batch,
        session: NodeSession,
        spool: SpoolSession,
        claim: Claim,
        digest: int,
    ) -> None:
        parts, now = self._parts, self._parts.clock.now()
        draft = parts.directory.draft(batch.node_id, now)
        ledger = spool.ledgers[Stream.EVENTS].copy()
        self._note_sequence(batch, ledger, digest, now)
        work = EventsToStore(
            batch=batch,
            received_at=now,
            latest=now + parts.future_tolerance_s,
            is_history=claim is Claim.HISTORY,
            knows_boot=parts.directory.knows_boot(batch.node_id, batch.boot_id),
            clock_high=spool.clock_high,
        )

        def write(connection: DatabaseConnection) -> list[StoredEvent]:
            stored = store_events(connection, work, draft)
            draft.save(connection)
            repository.save_ledger(connection, batch.node_id, batch.spool_id, ledger)
            return stored

        stored = await self._write(write)
        draft.adopt()
        spool.ledgers[Stream.EVENTS] = ledger
        for event in batch.events:
            spool.clock_high = clock_after(spool.clock_high, batch, event, now)
        if any(item.event.kind is EventKind.INVENTORY for item in stored):
            session.forget_tables()  # a GPU may have come back from another node
        parts.meters.events.labels("stored").inc(len(stored))
        parts.meters.events.labels("duplicate").inc(len(batch.events) - len(stored))
        for item in stored:
            for flag in item.flags:
                parts.meters.flags.labels(flag).inc()
        if stored:
            parts.sink.events_stored(stored)

    async def _apply_telemetry(
        self,
        batch: Batch,
        session: NodeSession,
        spool: SpoolSession,
        claim: Claim,
        schemas: Mapping[str, Schema],
        digest: int,
    ) -> None:
        parts, now = self._parts, self._parts.clock.now()
        ownership = parts.directory.ownership
        plan = plan_telemetry(
            batch,
            schemas,
            parts.directory.owner_of,
            now + parts.future_tolerance_s,
            now,
        )
        cells, is_urgent = 0, False
        async with parts.state.held() as state:
            if claim is not Claim.HISTORY:
                cells = apply_plan(plan, batch.node_id, session, state)
                is_urgent = remember_tables(plan, session, ownership)
                if plan.tables:
                    parts.keeper.note(batch.node_id, joined_plan(plan, session))
            # Under the same lock as the readings, so that a checkpoint has both or neither.
            self._note_sequence(batch, spool.ledgers[Stream.TELEMETRY], digest, now)
            session.telemetry_dirty = True
        if is_urgent:
            parts.sink.look_soon()
        parts.meters.readings.inc(cells)
        if plan.foreign_rows:
            parts.meters.oddities.labels("foreign_row").inc(plan.foreign_rows)
        if plan.from_future:
            parts.meters.oddities.labels("future").inc()
        if not parts.directory.knows_boot(batch.node_id, batch.boot_id):
            parts.meters.oddities.labels("unknown_boot").inc()

    def _note_sequence(self, batch: Batch, ledger: SequenceLedger, digest: int, now: float) -> None:
        shed = sum(
            ledger.declare(part.first_seq, part.last_seq, now)
            for part in batch.shed
            if part.stream is batch.stream
        )
        gap = ledger.apply(batch.seq, digest, now)
        if shed:
            self._parts.meters.sequences.labels("shed").inc(shed)
        if gap:
            self._parts.meters.sequences.labels("gap").inc(gap)

    def _note_presence(self, batch: Batch, session: NodeSession, claim: Claim) -> None:
        if claim is Claim.HISTORY:
            return
        session.last_seen_at = self._parts.clock.now()
        session.heard_at = self._parts.clock.monotonic()
        session.interval_s = batch.interval_s
        session.boot_id = batch.boot_id
        session.seen_dirty = True
        if batch.stream is Stream.EVENTS:
            session.more_events = batch.more_events

    def _acknowledge(
        self,
        batch: Batch,
        session: NodeSession,
        spool: SpoolSession,
        connection: Connection,
        arrival: Arrival,
    ) -> Acknowledgement:
        ledger, verdicts = spool.ledgers[batch.stream], self._parts.verdicts
        reply = verdicts.verdict_if_changed(batch.node_id, session.markers.get(connection))
        if reply is not None:
            session.remember_marker(connection, reply.marker)
        return Acknowledgement(
            stream=batch.stream,
            applied_seq=ledger.applied_seq,
            durable_seq=(
                ledger.applied_seq if batch.stream is Stream.EVENTS else ledger.durable_seq
            ),
            replayed=arrival is Arrival.REPLAY,
            feed_id=verdicts.feed_id,
            epoch=verdicts.epoch,
            verdict=reply.verdict if reply else None,
        )

    async def _write(self, run: Callable[[DatabaseConnection], T]) -> T:
        try:
            return await asyncio.wrap_future(self._parts.database.writer.submit(run))
        except WriteFailed as error:
            raise ProblemError(
                503,
                "storage_failed",
                "the batch could not be made durable",
                "The agent sends it again; look at the server's log and its disk.",
            ) from error
