"""The fast lane of telemetry: batches that hold no surprise, many nodes applied at once.

Nearly every batch continues what its node sent before: the same spool and boot, the next sequence.
Tables that the node did not send before are looked at once. Those batches are queued without
waiting for anything, and some milliseconds' worth of them is applied together: folding forty nodes
costs little more than folding one. All else is declined, and `IngestService.take` deals with it:
the rules are there, and what they say of these batches too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

import numpy as np
import structlog

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.checks import MAX_SEQ, MAX_TABLES, check_missing, check_tables
from gpuwarden_server.ingest.meters import IngestMeters
from gpuwarden_server.ingest.ports import NodeDirectory
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.sessions import Connection, KnownLayout, NodeSession, Sessions
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.ingest.telemetry import (
    check_entities,
    learn_layout,
    meet_tables,
    refresh_ownership,
    rows_of_layout,
)
from gpuwarden_verdict.engine.spools import Standing
from gpuwarden_verdict.windows import FleetState, JoinedTables, join_as
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream, Table
from gpuwarden_wire.codec import encode_json

WINDOW_S = 0.050
"""Batches are gathered for so long where they come thick; the first after a pause goes at once."""
MOST_TOGETHER = 64
"""Nodes folded in one go, and at once when so many wait: more do not fit the processor's cache."""
_NAMES = attrgetter("schema", "entities")
_log = structlog.get_logger(__name__)


class Ticket(Protocol):
    """A request that waits for its answer, on the event loop."""

    @property
    def connection(self) -> Connection:
        """Client address and port."""
        ...

    def answer(self, body: bytes) -> None:
        """The batch was applied: here is its acknowledgement."""
        ...

    def decline(self) -> None:
        """Nothing of it was applied: it goes the general way."""
        ...


class Queued(NamedTuple):
    """A batch that waits to be applied.

    Attributes:
        batch: As it came.
        tables: Its tables, names as the session knows them.
        known: What the session knows of them.
        session: Its node's.
        digest: Of its content.
        ticket: Who waits.
        since: Monotonic time of its arrival.
    """

    batch: Batch
    tables: JoinedTables
    known: KnownLayout
    session: NodeSession
    digest: int
    ticket: Ticket
    since: float


class LaneRules(Protocol):
    """What the service says of every batch, whichever way it takes."""

    def digest_of(self, batch: Batch) -> int:
        """Digest of its content."""
        ...

    def note_applied(self, item: Queued, now: float) -> None:
        """It is in the columnar state, whose lock is held; `now` in epoch seconds."""
        ...

    def conclude(self, item: Queued) -> Acknowledgement:
        """Note that its node was heard of, and acknowledge it."""
        ...


class TelemetryLane:
    """Queue and its flushes; on the event loop."""

    def __init__(
        self,
        state: GuardedState,
        sessions: Sessions,
        book: SchemaBook,
        directory: NodeDirectory,
        clock: Clock,
        meters: IngestMeters,
        rules: LaneRules,
    ) -> None:
        """Make an empty one."""
        self._state = state
        self._sessions = sessions
        self._book = book
        self._directory = directory
        self._clock = clock
        self._meters = meters
        self._rules = rules
        self._queue: list[Queued] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushed_at = -math.inf
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._seconds = meters.seconds.labels(Stream.TELEMETRY)

    def offer(self, batch: Batch, ticket: Ticket, latest: float) -> bool:
        """Queue a batch of an agent that may speak for its node.

        Args:
            batch: The batch.
            ticket: Who waits.
            latest: Times after this are in the future, epoch seconds.

        Returns:
            False where it holds a surprise: nothing was done.
        """
        session = self._sessions.find(batch.node_id)
        if session is None or not _continues(batch, session):
            return False
        if batch.schemas and not self._book.knows(batch.schemas):
            return False
        directory = self._directory
        if directory.contact_is_news(batch.node_id, batch.agent_version, batch.interval_s):
            return False
        if not directory.knows_boot(batch.node_id, batch.boot_id):
            return False
        known = self._known(batch, session)
        if known is None:
            return False
        tables = _joined(batch.tables, known, latest)
        if tables is None:
            return False
        digest = self._rules.digest_of(batch)
        self._queue.append(
            Queued(batch, tables, known, session, digest, ticket, self._clock.monotonic())
        )
        session.queued = True
        self._schedule()
        return True

    async def settled(self, session: NodeSession) -> None:
        """Wait until nothing of a node is queued; its lock, which keeps more away, is held."""
        while session.queued:
            flushed = asyncio.get_running_loop().create_future()
            self._waiters.append(flushed)
            await flushed

    def _known(self, batch: Batch, session: NodeSession) -> KnownLayout | None:
        """What the session knows of the tables; None where one is not in order, or another's."""
        names = tuple(map(_NAMES, batch.tables))
        known = session.layout
        if known is None or known.names != names:
            known = session.layouts.get(names) or learn_layout(names, session)
            known = known or self._met(batch, names, session)
            if known is None:
                return None
            session.layout = known
        ownership = self._directory.ownership
        if known.ownership != ownership and not refresh_ownership(
            known, batch.node_id, self._directory.owner_of, ownership
        ):
            return None
        return known

    def _met(
        self, batch: Batch, names: tuple[tuple[str, tuple[str, ...]], ...], session: NodeSession
    ) -> KnownLayout | None:
        """The tables as a node sends them for the first time; None where they are not in order."""
        try:
            schemas = self._book.of_batch(batch)
            check_tables(batch.tables, schemas)
            check_entities(batch, schemas, session)
        except ProblemError:
            return None
        meet_tables(batch.tables, schemas, session)
        return learn_layout(names, session)

    def _schedule(self) -> None:
        if self._task is not None:
            return
        loop = asyncio.get_running_loop()
        full = len(self._queue) == MOST_TOGETHER
        if self._timer is not None:
            if not full:
                return
            self._timer.cancel()
        wait_s = 0.0 if full else max(0.0, self._flushed_at + WINDOW_S - loop.time())
        self._timer = loop.call_later(wait_s, self._flush)

    def _flush(self) -> None:
        self._timer = None
        lock = self._state.lock
        if not lock.acquire(blocking=False):
            self._task = asyncio.create_task(self._flush_when_free(), name="telemetry-lane")
            return
        try:
            done = self._apply_queue(self._state.state)
        finally:
            lock.release()
        self._answer(done)

    async def _flush_when_free(self) -> None:
        try:
            async with self._state.held() as state:
                done = self._apply_queue(state)
        finally:
            self._task = None
        self._answer(done)

    def _apply_queue(self, state: FleetState) -> list[tuple[Queued, bool]]:
        """Apply what is queued, under the lock; whether each was."""
        queue, self._queue = self._queue, []
        self._flushed_at = asyncio.get_running_loop().time()
        refused = {id(item) for item in _with_infinities(queue)}
        fine = [item for item in queue if id(item) not in refused]
        done = [(item, False) for item in queue if id(item) in refused]
        for first in range(0, len(fine), MOST_TOGETHER):
            part = fine[first : first + MOST_TOGETHER]
            applied = self._apply_part(part, state)
            done += [(item, applied) for item in part]
        return done

    def _apply_part(self, part: Sequence[Queued], state: FleetState) -> bool:
        try:
            state.apply_joined(
                [item.tables for item in part],
                [rows_of_layout(item.known, item.batch.node_id, state) for item in part],
            )
            now = self._clock.now()
            for item in part:
                self._rules.note_applied(item, now)
        except Exception as error:
            _log.error("telemetry_lane_failed", worker="telemetry-lane", exc_info=error)
            return False
        self._meters.readings.inc(sum(item.known.layout.cells for item in part))
        return True

    def _answer(self, done: Sequence[tuple[Queued, bool]]) -> None:
        for item, _ in done:
            item.session.queued = False
        now = self._clock.monotonic()
        for item, applied in done:
            if applied:
                self._seconds.observe(now - item.since)
                item.ticket.answer(encode_json(self._rules.conclude(item)))
            else:
                item.ticket.decline()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _continues(batch: Batch, session: NodeSession) -> bool:
    """Whether a batch is telemetry of the live spool and boot, and the next, with nothing else."""
    if (
        batch.stream is not Stream.TELEMETRY
        or batch.version != WIRE_VERSION
        or batch.shed
        or batch.events
        or not 0 < len(batch.tables) <= MAX_TABLES
        or session.queued
        or session.lock.locked()
        or batch.spool_id != session.live_spool
        or batch.boot_id != session.boot_id
    ):
        return False
    spool = session.spools.get(batch.spool_id)
    if spool is None or spool.standing is not Standing.LIVE:
        return False
    # a header like the last batch's was checked with that; infinities and NaN fail comparisons
    follows = spool.ledgers[Stream.TELEMETRY].applied_seq < batch.seq <= MAX_SEQ
    return follows and 0.0 <= batch.sent_at < math.inf


def _joined(tables: Sequence[Table], known: KnownLayout, latest: float) -> JoinedTables | None:
    """The tables with the session's own strings, a copy of which each batch would fill memory.

    None where a table is not as it should be.
    """
    times = tuple([table.observed_at for table in tables])
    for at in times:
        if not 0.0 <= at <= latest:
            return None
    if [len(table.f32) for table in tables] != known.f32_bytes:
        return None
    if [len(table.f64) for table in tables] != known.f64_bytes:
        return None
    joined = join_as(known.layout, tables, times)
    if joined.missing:
        try:
            for table, schema in zip(tables, known.layout.schemas, strict=True):
                check_missing(table, schema, "")
        except ProblemError:
            return None
    return joined


def _with_infinities(queue: Sequence[Queued]) -> list[Queued]:
    """Batches with a number that no reading is; all of them are looked through at once."""
    if not _any_infinite(queue):
        return []
    return [item for item in queue if _any_infinite([item])]


def _any_infinite(queue: Sequence[Queued]) -> bool:
    narrow = np.frombuffer(b"".join([item.tables.f32 for item in queue]), "<f4")
    wide = np.frombuffer(b"".join([item.tables.f64 for item in queue]), "<f8")
    return bool(np.isinf(narrow).any() or np.isinf(wide).any())
