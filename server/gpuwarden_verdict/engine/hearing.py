"""Taking batches in process, by the rules of the server's front door, and who was heard of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.engine.arrivals import EventsToStore, Keep, keep_events
from gpuwarden_verdict.engine.clocks import clock_after
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.events import EventFlag, StoredEvent
from gpuwarden_verdict.engine.presence import Presence
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
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import FleetState, ReadTable
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.codec import content_digest
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

FUTURE_TOLERANCE_S = 60.0
_DIGEST_HEX = 15
Rows = npt.NDArray[np.int64]


class Heard(StrEnum):
    """What became of a batch."""

    TAKEN = "taken"
    HISTORY = "history"  # from a superseded spool: events are on record, readings are left out
    REPLAYED = "replayed"  # it was there before
    CONFLICT = "conflict"  # its sequence was there before with other content
    REFUSED = "refused"  # another spool speaks for the node and is live


@dataclass(slots=True)
class _Spool:
    """One spool of a node; `clock_high` is the latest time that its clock has shown."""

    standing: Standing
    ledgers: dict[Stream, SequenceLedger] = field(
        default_factory=lambda: {stream: SequenceLedger() for stream in Stream}
    )
    clock_high: float = 0.0


@dataclass(slots=True)
class _Session:
    """What is remembered of one node between batches."""

    spools: dict[str, _Spool] = field(default_factory=dict)
    live_spool: str = ""
    refused_spool: str = ""
    heard_at: float = 0.0
    interval_s: float = 0.0
    boot_id: str = ""
    more_events: bool = False
    kept: set[str] = field(default_factory=set)

    @property
    def newest_agent_spool(self) -> str:
        """The spool of an agent that came last, "" where none ever did."""
        return next((one for one in reversed(self.spools) if one != DOOR_SPOOL), "")


class FrontDoor:
    """Claims, order, replays and clocks of batches; readings go into the windows at once."""

    def __init__(
        self, directory: Directory, windows: FleetState, future_tolerance_s: float
    ) -> None:
        """Make one.

        Args:
            directory: Nodes and GPUs; changed by inventories and boots.
            windows: Where readings go.
            future_tolerance_s: How far an agent's clock may run ahead.
        """
        self._directory = directory
        self._windows = windows
        self._future_tolerance_s = future_tolerance_s
        self._sessions: dict[str, _Session] = {}
        self._schemas: dict[str, Schema] = {}
        self._rows: dict[tuple[str, EntityKind, tuple[str, ...]], Rows] = {}
        self._events = 0

    def take(self, batch: Batch, at: float) -> tuple[Heard, list[StoredEvent]]:
        """Take one batch; the events that are new, in order, are to be judged.

        Args:
            batch: As an agent sends it.
            at: When it arrives, epoch seconds.

        Raises:
            KeyError: A table is of a schema that no batch has brought yet.
        """
        session = self._sessions.setdefault(batch.node_id, _Session())
        claim = self._claim(batch, session, at)
        if claim is Claim.REFUSED:
            session.refused_spool = batch.spool_id
            return Heard.REFUSED, []
        self._schemas |= {schema.hash: schema for schema in batch.schemas}
        spool = session.spools.get(batch.spool_id)
        digest = int(content_digest(batch)[:_DIGEST_HEX], 16)
        arrival = spool.ledgers[batch.stream].judge(batch.seq, digest) if spool else Arrival.NEW
        if arrival is Arrival.CONFLICT:
            return Heard.CONFLICT, []
        spool = self._introduce(batch, session, claim, at)
        kept: list[StoredEvent] = []
        if arrival is Arrival.NEW:
            kept = self._apply(batch, spool, claim, at)
            self._note_sequence(batch, spool.ledgers[batch.stream], digest, at)
        if claim is Claim.HISTORY:
            return Heard.HISTORY, kept
        self._note_presence(batch, session, at)
        return (Heard.TAKEN if arrival is Arrival.NEW else Heard.REPLAYED), kept

    def tell(self, node_id: str, event: Event, at: float) -> list[StoredEvent]:
        """What somebody else says of a node: who speaks for it, and when it was heard, stay.

        Args:
            node_id: The node.
            event: What is said.
            at: When, epoch seconds.

        Returns:
            The event, nothing where its natural id was there before.
        """
        session = self._sessions.setdefault(node_id, _Session())
        batch = Batch(
            version=WIRE_VERSION,
            node_id=node_id,
            spool_id=TOLD_SPOOL,
            stream=Stream.EVENTS,
            seq=1,
            boot_id=session.boot_id,
            agent_version="",
            sent_at=at,
            events=(event,),
        )
        latest = at + self._future_tolerance_s
        work = EventsToStore(batch, at, latest, is_history=False, knows_boot=True)
        return keep_events(work, self._directory.draft(node_id, at), self._keeper(batch, at))

    def note_heard(self, node_ids: Iterable[str], at: float, interval_s: float) -> None:
        """Nodes whose readings came by another way than batches, each of a cadence."""
        for node_id in node_ids:
            session = self._sessions.setdefault(node_id, _Session())
            session.live_spool = session.live_spool or DOOR_SPOOL
            session.heard_at, session.interval_s = at, interval_s

    def presence(self, node_id: str, now: float) -> Presence | None:
        """When the node was last heard of; None where it never was."""
        session = self._sessions.get(node_id)
        if session is None or not session.live_spool:
            return None
        return Presence(
            node_id=node_id,
            last_seen_at=session.heard_at,
            silent_s=max(0.0, now - session.heard_at),
            interval_s=session.interval_s,
            boot_id=session.boot_id,
            more_events=session.more_events,
            live_spool=session.live_spool,
            refused_spool=session.refused_spool,
        )

    def _claim(self, batch: Batch, session: _Session, at: float) -> Claim:
        spool = session.spools.get(batch.spool_id)
        standing = standing_beside_door(
            batch.spool_id,
            spool.standing if spool else None,
            session.live_spool,
            session.newest_agent_spool,
        )
        from_door = session.live_spool == DOOR_SPOOL and batch.spool_id != DOOR_SPOOL
        silent_s = inf if from_door else at - session.heard_at
        return claim_of(standing, bool(session.live_spool), silent_s, session.interval_s)

    def _introduce(self, batch: Batch, session: _Session, claim: Claim, at: float) -> _Spool:
        contact = (batch.agent_version, batch.interval_s)
        is_news = self._directory.contact_is_news(batch.node_id, *contact)
        if claim is not Claim.HISTORY and is_news:
            draft = self._directory.draft(batch.node_id, at)
            draft.note_contact(*contact)
            draft.adopt()
        if claim in (Claim.FIRST, Claim.TAKES_OVER):
            for spool in session.spools.values():
                spool.standing = Standing.SUPERSEDED
            new = session.spools.setdefault(batch.spool_id, _Spool(Standing.LIVE))
            new.standing = Standing.LIVE
            session.live_spool, session.refused_spool = batch.spool_id, ""
        return session.spools[batch.spool_id]

    def _apply(self, batch: Batch, spool: _Spool, claim: Claim, at: float) -> list[StoredEvent]:
        match batch.stream:
            case Stream.EVENTS:
                return self._take_events(batch, spool, claim, at)
            case Stream.TELEMETRY:
                if claim is not Claim.HISTORY:
                    self._take_readings(batch, at)
                return []

    def _take_events(
        self, batch: Batch, spool: _Spool, claim: Claim, at: float
    ) -> list[StoredEvent]:
        draft = self._directory.draft(batch.node_id, at)
        work = EventsToStore(
            batch=batch,
            received_at=at,
            latest=at + self._future_tolerance_s,
            is_history=claim is Claim.HISTORY,
            knows_boot=self._directory.knows_boot(batch.node_id, batch.boot_id),
            clock_high=spool.clock_high,
        )
        kept = keep_events(work, draft, self._keeper(batch, at))
        draft.adopt()
        for event in batch.events:
            spool.clock_high = clock_after(spool.clock_high, batch, event, at)
        return kept

    def _keeper(self, batch: Batch, at: float) -> Keep:
        ids = self._sessions[batch.node_id].kept

        def keep(event: Event, ref: EntityRef, flags: frozenset[EventFlag]) -> StoredEvent | None:
            if event.id in ids:
                return None
            ids.add(event.id)
            self._events += 1
            return StoredEvent(self._events, event, ref, batch.node_id, batch.boot_id, at, flags)

        return keep

    def _take_readings(self, batch: Batch, at: float) -> None:
        latest = at + self._future_tolerance_s
        plan = plan_telemetry(batch, self._schemas, self._directory.owner_of, latest, at)
        read = [
            ReadTable(
                part.schema.entity_kind,
                self._rows_of(batch.node_id, part.schema.entity_kind, part.table.entities),
                part.schema,
                part.table.f32,
                part.table.f64,
                part.table.missing,
                part.observed_at,
            )
            for part in plan.tables
        ]
        self._windows.apply_batches([read])

    def _rows_of(self, node_id: str, kind: EntityKind, entities: tuple[str, ...]) -> Rows:
        if kind is EntityKind.GPU:  # it may have come from another node
            refs = (entity_named(kind, one, node_id) for one in entities)
            return np.array([self._windows.register(ref) for ref in refs], np.int64)
        key = node_id, kind, entities
        rows = self._rows.get(key)
        if rows is None:
            refs = (entity_named(kind, one, node_id) for one in entities)
            rows = np.array([self._windows.register(ref) for ref in refs], np.int64)
            self._rows[key] = rows
        return rows

    def _note_sequence(self, batch: Batch, ledger: SequenceLedger, digest: int, at: float) -> None:
        for part in batch.shed:
            if part.stream is batch.stream:
                ledger.declare(part.first_seq, part.last_seq, at)
        ledger.apply(batch.seq, digest, at)

    def _note_presence(self, batch: Batch, session: _Session, at: float) -> None:
        session.heard_at, session.interval_s = at, batch.interval_s
        session.boot_id = batch.boot_id
        if batch.stream is Stream.EVENTS:
            session.more_events = batch.more_events
