"""The rolling checkpoint of telemetry, and what a restart makes of it.

Nodes are spread over SHARDS by a hash of their name. Each shard is one row of history.db: the
incremental state of its nodes and, taken under the same lock, the sequences that are in it. After
the commit is synced, agents may trim to those sequences. A pass over all shards takes
CHECKPOINT_PASS_S, or longer where there is much to write; shards without new telemetry are left
out.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog
from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.ingest import repository
from gpuwarden_server.ingest.meters import CheckpointMeters
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.ingest.ports import TelemetryKeeper
from gpuwarden_server.ingest.schemas import SchemaBook
from gpuwarden_server.ingest.sessions import NodeSession, Sessions, SpoolSession
from gpuwarden_server.ingest.state import GuardedState
from gpuwarden_server.store.database import Store
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.engine.sequences import SequenceLedger
from gpuwarden_verdict.engine.spools import Standing
from gpuwarden_verdict.entities import EntityRef, renamed_ref
from gpuwarden_verdict.windows import CheckpointError, encode_checkpoint
from gpuwarden_wire.batches import Stream

# A node's shard is in its row for ever: another number of shards is a new HISTORY_VERSION.
SHARDS = 64
BYTES_A_SECOND = 4 << 20
LONGEST_PASS_S = 300.0
"""Agents keep what no checkpoint holds: five minutes of it is little beside their spools."""
_log = structlog.get_logger(__name__)

_Members = list[tuple[str, NodeSession]]
_Ledgers = dict[str, dict[str, SequenceLedger]]
_ledgers_decoder = msgspec.json.Decoder(_Ledgers)


def shard_of(node_id: str) -> int:
    """The shard that a node's checkpoint lies in."""
    return zlib.crc32(node_id.encode()) % SHARDS


def pass_length(least_s: float, size: int) -> float:
    """Seconds that a pass takes: longer for a big fleet, which would else write all the time.

    Args:
        least_s: What the operator asks for.
        size: Bytes that the last pass wrote.
    """
    return max(least_s, min(size / BYTES_A_SECOND, LONGEST_PASS_S))


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One shard as exported.

    Attributes:
        state: FleetState.export_nodes.
        open_minutes: Telemetry that is in no roll-up yet.
        ledgers: Encoded, by node and spool.
        ceilings: What each ledger may be trimmed to once this is durable.
    """

    state: bytes
    open_minutes: bytes
    ledgers: bytes
    ceilings: list[tuple[SequenceLedger, int]]


class Checkpointer:
    """Writes the checkpoint while the server runs, and a last one at its end."""

    def __init__(
        self,
        store: Store,
        state: GuardedState,
        keeper: TelemetryKeeper,
        sessions: Sessions,
        clock: Clock,
        meters: CheckpointMeters,
        pass_s: float,
    ) -> None:
        self._store = store
        self._state = state
        self._keeper = keeper
        self._sessions = sessions
        self._clock = clock
        self._meters = meters
        self._pass_s = pass_s
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self._forced: set[int] = set()

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on: both its shards are written at the next pass."""
        self._forced |= {shard_of(old), shard_of(new)}

    async def start(self) -> None:
        """Begin the rolling passes."""
        self._task = asyncio.create_task(self._roll(), name="checkpoint")

    async def stop(self) -> None:
        """End them, with one last pass."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.run_pass()

    def probe(self) -> str | None:
        """For /readyz: None while checkpoints are written."""
        if self._task is not None and self._task.done():
            return "the checkpoint task has ended"
        return "the last checkpoint could not be written" if self._failing else None

    async def run_pass(self) -> None:
        """Write every shard that has something new, and when nodes were last heard of."""
        for shard in range(SHARDS):
            await self._save_if_new(shard, self._members_of(shard))
        await self._save_last_seen()

    async def _roll(self) -> None:
        pass_s = self._pass_s
        while True:
            size = 0
            for shard in range(SHARDS):
                await asyncio.sleep(pass_s / SHARDS)
                size += await self._save_if_new(shard, self._members_of(shard))
            await self._save_last_seen()
            pass_s = pass_length(self._pass_s, size)

    def _members_of(self, shard: int) -> _Members:
        """The nodes of a shard as they are called now: one may be renamed during a pass."""
        return [one for one in self._sessions.items() if shard_of(one[0]) == shard]

    async def _save_if_new(self, shard: int, members: _Members) -> int:
        """Write a shard that has something new; the bytes that it took."""
        if shard in self._forced or any(session.telemetry_dirty for _, session in members):
            return await self._save(shard, members)
        return 0

    async def _save(self, shard: int, members: _Members) -> int:
        with self._meters.seconds.time():
            now = self._clock.now()  # before the look: it holds no name that was given up by then
            self._forced.discard(shard)
            snapshot = await asyncio.to_thread(self._export, members)

            def write(connection: Connection) -> None:
                repository.save_checkpoint(connection, shard, snapshot.state, snapshot.ledgers, now)
                repository.save_open_minutes(connection, shard, snapshot.open_minutes)

            try:
                await asyncio.wrap_future(self._store.history.writer.submit(write))
                await asyncio.to_thread(self._store.history.sync)
            except (WriteFailed, OSError) as error:
                self._forced.add(shard)
                self._note_failure(members, error)
                return 0
        self._failing = False
        size = len(snapshot.state) + len(snapshot.ledgers) + len(snapshot.open_minutes)
        self._meters.bytes.inc(size)
        for ledger, ceiling in snapshot.ceilings:
            ledger.durable_seq = max(ledger.durable_seq, ceiling)
        return size

    def _note_failure(self, members: list[tuple[str, NodeSession]], error: Exception) -> None:
        if not self._failing:
            _log.error("checkpoint_failed", error=str(error))
        self._failing = True
        self._meters.failures.inc()
        for _, session in members:
            session.telemetry_dirty = True

    def _export(self, members: _Members) -> _Snapshot:
        """In a thread: the state and the sequences of some nodes, at one moment."""
        now = self._clock.now()
        with self._state.lock:
            # A node may have been renamed since: it is of another shard, which is written next.
            find = self._sessions.find
            members = [(name, one) for name, one in members if find(name) is one]
            node_ids = [node_id for node_id, _ in members]
            parts = self._state.state.copy_nodes(node_ids)
            open_minutes = self._keeper.snapshot(node_ids)
            ledgers: _Ledgers = {}
            ceilings: list[tuple[SequenceLedger, int]] = []
            for node_id, session in members:
                session.telemetry_dirty = False
                for spool_id, spool in list(session.spools.items()):
                    ledger = spool.ledgers[Stream.TELEMETRY]
                    kept = ledger.copy()
                    kept.durable_seq = ledger.ceiling(now)
                    ledgers.setdefault(node_id, {})[spool_id] = kept
                    ceilings.append((ledger, kept.durable_seq))
        return _Snapshot(
            encode_checkpoint(parts), open_minutes(), msgspec.json.encode(ledgers), ceilings
        )

    async def _save_last_seen(self) -> None:
        seen: dict[tuple[str, str], float] = {}
        for node_id, session in self._sessions.items():
            if session.seen_dirty:
                session.seen_dirty = False
                seen[node_id, session.live_spool] = session.last_seen_at
        if not seen:
            return
        write = self._store.state.writer.submit(
            lambda connection: repository.save_last_seen(connection, seen)
        )
        try:
            await asyncio.wrap_future(write)
        except WriteFailed as error:
            _log.error("last_seen_not_written", nodes=len(seen), error=str(error))


def restore(
    store: Store,
    state: GuardedState,
    keeper: TelemetryKeeper,
    sessions: Sessions,
    book: SchemaBook,
    names: FormerNames,
    now: float,
) -> None:
    """Fill sessions, schemas and the columnar state from the two files, at start.

    A live spool gets its full patience from now on: that the server was away is not the agent's
    silence. A checkpoint that cannot be read is left out: the state grows again.

    Args:
        store: The files.
        state: Empty state.
        keeper: Empty keeper of telemetry.
        sessions: No sessions.
        book: Empty book.
        names: What nodes were called before.
        now: The monotonic clock, seconds.
    """
    with store.state.read() as connection:
        book.learn(repository.load_schemas(connection))
        contacts = repository.load_contacts(connection)
        for node_id, spool_id, standing in repository.load_spools(connection):
            session = sessions.of(node_id)
            session.spools[spool_id] = SpoolSession(standing)
            session.last_seen_at = contacts[node_id].last_seen_at
            session.interval_s = contacts[node_id].interval_s
            session.boot_id = contacts[node_id].boot_id
            session.heard_at = now
            if standing is Standing.LIVE:
                session.live_spool = spool_id
        for node_id, spool_id, ledger in repository.load_ledgers(connection):
            spool = sessions.of(node_id).spools.get(spool_id)
            if spool is not None:
                spool.ledgers[Stream.EVENTS] = ledger
    _restore_telemetry(store, state, sessions, names)
    _restore_open_minutes(store, keeper, names)


def _restore_telemetry(
    store: Store, state: GuardedState, sessions: Sessions, names: FormerNames
) -> None:
    # The newest last: of a node that was renamed there may be a checkpoint under either name.
    with store.history.read() as connection:
        for saved in repository.load_checkpoints(connection):
            _restore_shard(saved, state, sessions, partial(names.at, at=saved.saved_at))


def _restore_shard(
    saved: repository.StoredCheckpoint,
    state: GuardedState,
    sessions: Sessions,
    present: Callable[[str], str],
) -> None:
    def present_ref(ref: EntityRef) -> EntityRef:
        return renamed_ref(ref, ref.node_id, present(ref.node_id))

    try:
        ledgers = _ledgers_decoder.decode(saved.ledgers)
        with state.lock:
            state.state.import_nodes(saved.state, present_ref)
    except (CheckpointError, msgspec.DecodeError) as error:
        _log.warning("checkpoint_left_out", shard=saved.shard, reason=str(error))
        return
    _restore_ledgers({present(node_id): held for node_id, held in ledgers.items()}, sessions)


def _restore_open_minutes(store: Store, keeper: TelemetryKeeper, names: FormerNames) -> None:
    with store.history.read() as connection:
        for shard, saved_at, body in repository.load_open_minutes(connection):
            try:
                keeper.restore(body, partial(names.at, at=saved_at))
            except (msgspec.DecodeError, KeyError) as error:
                _log.warning("open_minutes_left_out", shard=shard, reason=repr(error))


def _restore_ledgers(ledgers: _Ledgers, sessions: Sessions) -> None:
    for node_id, spools in ledgers.items():
        held = sessions.of(node_id).spools
        for spool_id in spools.keys() & held.keys():
            held[spool_id].ledgers[Stream.TELEMETRY] = spools[spool_id]
