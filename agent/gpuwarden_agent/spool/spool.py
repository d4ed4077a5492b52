"""The spool: two streams of batches on disk, bounded, in memory while the disk is full."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from gpuwarden_agent.spool.entry import Entry, Origin, Outgoing, SpoolSize, size_of
from gpuwarden_agent.spool.halving import halve, template
from gpuwarden_agent.spool.opening import open_spool, sound_marker, take_folder
from gpuwarden_agent.spool.store import BatchStore, StoreFailed
from gpuwarden_wire.batches import Batch, ShedRange, Stream, Table
from gpuwarden_wire.codec import encode_batch
from gpuwarden_wire.events import Event
from gpuwarden_wire.schema import Schema

MEMORY_CAP_BYTES = 16 * 1024 * 1024
"""Most bytes kept in memory while the disk takes nothing: about two hours of a full node."""

_EVENTS_A_BATCH = 500
_IN_ORDER = 4
"""Unsent telemetry up to this many batches goes in order; beyond, the newest goes first."""

_RETRY_DISK_S = 5.0
_TRIM_EVERY = 8
_SHED_STEP = 64
_decoder = msgspec.msgpack.Decoder(Batch)

Position = tuple[str, bytes]


class Spool:
    """Owns the spool folder. Thread-safe.

    Events get their sequence when they are stored, telemetry when it is first sent: so live
    telemetry can overtake what piled up during an outage, and still each stream's sequences are
    sent in rising order.
    """

    def __init__(
        self,
        folder: Path,
        origin: Origin,
        cap_bytes: int,
        memory_cap_bytes: int = MEMORY_CAP_BYTES,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open or create the spool.

        Raises:
            SpoolUnusable: The folder cannot be used, or another agent has it.
        """
        self._folder = folder
        self._origin = origin
        self._cap_bytes = cap_bytes
        self._memory_cap_bytes = memory_cap_bytes
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._folder_lock = take_folder(folder)
        try:
            opened = open_spool(folder, origin.boot_id, clock())
        except BaseException:
            self._folder_lock.close()
            raise
        self._disk = opened.store
        self.spool_id = opened.spool_id
        self.set_aside = opened.set_aside
        self._next_seq = opened.next_seq
        self._next_id = self._disk.highest_id() + 1
        self._newest_sent_id = 0
        self._overflow: BatchStore | None = None
        self._trouble: str | None = None
        self._retry_at = 0.0
        self._floor = dict.fromkeys(Stream, 0)
        self._shed_here = dict.fromkeys(Stream, 0)
        self._has_shed = self._disk.count_shed() > 0
        self._may_be_unsent = True
        self._hungry = False
        self._fresh: Outgoing | None = None
        self._trim_due = 0

    # what was collected

    def append_events(self, events: Sequence[Event], position: Position | None = None) -> None:
        """Store events, and a follower's position with them; on disk when it returns.

        While the disk takes nothing they are kept in memory, which `trouble` says.
        """
        with self._lock:
            now = self._clock()
            parts = (
                events[at : at + _EVENTS_A_BATCH] for at in range(0, len(events), _EVENTS_A_BATCH)
            )
            batches = [self._origin.batch(Stream.EVENTS, now, tuple(part)) for part in parts]
            bodies = list(map(encode_batch, batches))
            self._append(Stream.EVENTS, bodies, position, ())

    def append_telemetry(self, tables: Sequence[Table], schemas: Iterable[Schema]) -> None:
        """Store one batch of telemetry and the schemas that its tables name.

        It is numbered at once, and kept at hand, where the sender waits for just that.
        """
        with self._lock:
            batch = self._origin.batch(Stream.TELEMETRY, self._clock(), tables=tuple(tables))
            hungry, self._hungry = self._hungry, False
            (entry,) = self._append(
                Stream.TELEMETRY, [encode_batch(batch)], None, tuple(schemas), number=hungry
            )
            if entry.seq is None:
                self._may_be_unsent = True
            else:
                self._newest_sent_id = max(self._newest_sent_id, entry.id)
                self._fresh = Outgoing(entry.id, msgspec.structs.replace(batch, seq=entry.seq))

    def position(self, follower: str) -> bytes | None:
        """What was last stored by `append_events` under this name."""
        with self._lock:
            for store in reversed(self._stores()):
                if (content := store.position(follower)) is not None:
                    return content
        return None

    def fact(self, name: str) -> str | None:
        """Something the agent itself remembers over restarts."""
        with self._lock:
            return self._disk.fact(f"agent.{name}")

    def remember(self, name: str, value: str) -> None:
        """Remember something over restarts, if the disk takes it."""
        with self._lock:
            try:
                with self._disk.transaction(durable=False):
                    self._disk.set_fact(f"agent.{name}", value)
            except StoreFailed as failure:
                self._degrade(failure.reason)

    # what is to be sent

    def may_have_more(self, after: Mapping[Stream, int]) -> bool:
        """Whether there may be batches behind those sequences; numbers none, asks no disk."""
        with self._lock:
            numbered = any(
                max(seq, self._floor[stream]) + 1 < self._next_seq[stream]
                for stream, seq in after.items()
            )
            self._hungry = not (numbered or self._may_be_unsent)
            return not self._hungry

    def next_events(self, after_seq: int) -> Outgoing | None:
        """The batch of events with the lowest sequence above `after_seq`."""
        with self._lock:
            found = self._first(Stream.EVENTS, after_seq)
            return self._outgoing(*found) if found else None

    def next_telemetry(self, after_seq: int) -> Outgoing | None:
        """The next telemetry: what has a sequence above `after_seq`, then live, then backlog."""
        with self._lock:
            fresh = self._fresh
            floor = max(after_seq, self._floor[Stream.TELEMETRY])
            if fresh is not None and fresh.batch.seq == floor + 1:
                return self._complete(self._disk, fresh.entry_id, fresh.batch)
            found = self._first(Stream.TELEMETRY, after_seq) or self._number_next()
            return self._outgoing(*found) if found else None

    def schemas(self) -> dict[str, Schema]:
        """All schemas that stored batches may name, by hash."""
        with self._lock:
            found: dict[str, Schema] = {}
            for store in self._stores():
                found.update(store.schemas())
            return found

    def trim(self, stream: Stream, durable_seq: int) -> None:
        """The server has everything of a stream up to `durable_seq` for good: let go of it."""
        with self._lock:
            if durable_seq <= self._floor[stream]:
                return
            self._floor[stream] = durable_seq
            if stream is Stream.TELEMETRY and self._overflow is None and not self._has_shed:
                self._trim_due += 1  # several at once, with a later batch
                return
            for store in self._stores():
                self._trim_store(store, stream)

    def split(self, outgoing: Outgoing) -> bool:
        """Halve a batch that the server found too large; False where it cannot be halved."""
        with self._lock:
            self._fresh, self._may_be_unsent = None, True
            halves = halve(outgoing.batch, self.schemas())
            store = self._store_of(outgoing.entry_id)
            if halves is None or store is None:
                return False
            try:
                with store.transaction(durable=outgoing.batch.stream is Stream.EVENTS):
                    store.replace_body(outgoing.entry_id, template(halves[0]))
                    self._insert_behind(store, outgoing, template(halves[1]))
            except StoreFailed as failure:
                self._degrade(failure.reason)
                return False
            return True

    def drop(self, outgoing: Outgoing) -> None:
        """Give up a batch that the server refuses for ever; its sequence is declared as dropped."""
        with self._lock:
            store = self._store_of(outgoing.entry_id)
            self._fresh = None
            if store is None:
                return
            stream, seq = outgoing.batch.stream, outgoing.batch.seq
            try:
                with store.transaction(durable=False):
                    store.delete(outgoing.entry_id)
                    store.release_shed(stream, seq)
                    store.add_shed(stream, seq, seq)
                self._has_shed = True
            except StoreFailed as failure:
                self._degrade(failure.reason)

    # how it is

    @property
    def trouble(self) -> str | None:
        """Why batches are kept in memory (disk_full, …); None while the disk takes them."""
        return self._trouble

    @property
    def shed(self) -> dict[Stream, int]:
        """Batches that this process dropped for want of room."""
        return dict(self._shed_here)

    def size(self) -> SpoolSize:
        """How full the spool is."""
        with self._lock:
            self._trim_where_due()
            return size_of(*(store.totals() for store in self._stores()))

    def retry_disk(self) -> None:
        """Move what is in memory to the disk, if it takes it by now; cheap where nothing is."""
        with self._lock:
            if self._overflow is not None and self._monotonic() >= self._retry_at:
                self._drain(self._overflow)

    def close(self) -> int:
        """Close; returns the number of batches that were in memory only and are lost."""
        with self._lock:
            if self._overflow is not None:
                self._drain(self._overflow)
            self._trim_where_due()
            lost = self.size().in_memory
            if self._overflow is None:
                self._mark_closed()
            for store in self._stores():
                store.close()
            self._folder_lock.close()
            return lost

    # storing

    def _append(
        self,
        stream: Stream,
        bodies: Sequence[bytes],
        position: Position | None,
        schemas: Sequence[Schema],
        *,
        number: bool = False,
    ) -> list[Entry]:
        self.retry_disk()
        number = number or stream is Stream.EVENTS
        entries = [self._seal(stream, body, number=number) for body in bodies]
        if self._overflow is None:
            try:
                self._put(self._disk, self._cap_bytes, entries, position, schemas)
                return entries
            except StoreFailed as failure:
                self._degrade(failure.reason)
        assert self._overflow is not None
        self._put(self._overflow, self._memory_cap_bytes, entries, position, schemas)
        return entries

    def _seal(self, stream: Stream, body: bytes, *, number: bool) -> Entry:
        seq = self._take_seq(stream) if number else None
        self._next_id += 1
        return Entry(self._next_id - 1, stream, seq, body)

    def _take_seq(self, stream: Stream) -> int:
        seq = self._next_seq[stream]
        self._next_seq[stream] = seq + 1
        return seq

    def _put(
        self,
        store: BatchStore,
        cap_bytes: int,
        entries: Sequence[Entry],
        position: Position | None,
        schemas: Sequence[Schema],
    ) -> None:
        before, shed_before = dict(self._next_seq), dict(self._shed_here)
        durable = position is not None or any(one.stream is Stream.EVENTS for one in entries)
        try:
            with store.transaction(durable=durable):
                for schema in schemas:
                    store.add_schema(schema)
                for entry in entries:
                    store.insert(entry)
                if position is not None:
                    store.set_position(*position)
                full = store.payload_bytes > cap_bytes
                trims = store is self._disk and self._trim_due >= (1 if full else _TRIM_EVERY)
                if trims:
                    store.delete_through(Stream.TELEMETRY, self._floor[Stream.TELEMETRY])
                self._make_room(store, cap_bytes)
                self._save_sequences(store)
            if trims:
                self._trimmed(store)
        except StoreFailed:
            self._next_seq, self._shed_here = before, shed_before
            raise

    def _make_room(self, store: BatchStore, cap_bytes: int) -> None:
        """Drop what was sealed first: telemetry as long as there is any, only then events."""
        for stream in (Stream.TELEMETRY, Stream.EVENTS):
            left = True
            while left and store.payload_bytes > cap_bytes:
                left = self._shed_some(store, stream, cap_bytes)

    def _shed_some(self, store: BatchStore, stream: Stream, cap_bytes: int) -> bool:
        """Drop some of the oldest; False where the stream has none left."""
        oldest = store.oldest(stream, _SHED_STEP)
        for entry_id, seq in oldest:
            if store.payload_bytes <= cap_bytes:
                break
            self._shed(store, stream, entry_id, seq)
        return bool(oldest)

    def _shed(self, store: BatchStore, stream: Stream, entry_id: int, seq: int | None) -> None:
        number = self._take_seq(stream) if seq is None else seq
        self._fresh = None
        store.delete(entry_id)
        store.release_shed(stream, number)
        store.add_shed(stream, number, number)
        self._shed_here[stream] += 1
        self._has_shed = True

    def _save_sequences(self, store: BatchStore) -> None:
        for stream, seq in self._next_seq.items():
            store.set_fact(f"next_seq.{stream}", str(seq))

    # sending

    def _stores(self) -> list[BatchStore]:
        return [self._disk] if self._overflow is None else [self._disk, self._overflow]

    def _store_of(self, entry_id: int) -> BatchStore | None:
        return next((store for store in self._stores() if store.holds(entry_id)), None)

    def _first(self, stream: Stream, after_seq: int) -> tuple[BatchStore, Entry] | None:
        floor = max(after_seq, self._floor[stream])
        if floor + 1 >= self._next_seq[stream]:
            return None  # all that was ever numbered
        found = [
            (store, entry)
            for store in self._stores()
            if (entry := store.first_numbered(stream, floor)) is not None
        ]
        return min(found, key=lambda pair: pair[1].seq or 0, default=None)

    def _number_next(self) -> tuple[BatchStore, Entry] | None:
        # On a full disk nothing can be numbered: its telemetry waits, what is in memory goes.
        if not self._may_be_unsent:
            return None
        store = self._overflow or self._disk
        entry = store.oldest_unsent()
        if entry is None:
            self._may_be_unsent = self._overflow is not None
            self._hungry = not self._may_be_unsent
            return None
        if store.has_more_unsent_than(_IN_ORDER):
            newest = store.newest_unsent()
            if newest is not None and newest.id > self._newest_sent_id:
                entry = newest
        before = dict(self._next_seq)
        seq = self._take_seq(Stream.TELEMETRY)
        try:
            with store.transaction(durable=False):
                store.number(entry.id, seq)
                self._save_sequences(store)
        except StoreFailed as failure:
            self._next_seq = before
            self._degrade(failure.reason)
            return None
        self._newest_sent_id = max(self._newest_sent_id, entry.id)
        return store, Entry(entry.id, entry.stream, seq, entry.body)

    def _outgoing(self, store: BatchStore, entry: Entry) -> Outgoing:
        sealed = _decoder.decode(entry.body)
        numbered = msgspec.structs.replace(sealed, seq=entry.seq or 0)
        return self._complete(store, entry.id, numbered)

    def _complete(self, store: BatchStore, entry_id: int, sealed: Batch) -> Outgoing:
        """Fill in what is known only when a numbered batch is sent."""
        of_events, seq = sealed.stream is Stream.EVENTS, sealed.seq
        batch = msgspec.structs.replace(
            sealed,
            spool_id=self.spool_id,
            more_events=of_events and self._first(Stream.EVENTS, seq) is not None,
            late=of_events and self._origin.is_late(sealed, self._clock()),
            shed=self._declared(store, sealed.stream, seq),
        )
        return Outgoing(entry_id, batch)

    def _declared(self, store: BatchStore, stream: Stream, seq: int) -> tuple[ShedRange, ...]:
        if not self._has_shed:
            return ()
        try:
            with store.transaction(durable=False):
                return store.carry_shed(stream, seq)
        except StoreFailed as failure:
            self._degrade(failure.reason)
            return ()

    def _trim_where_due(self) -> None:
        if self._trim_due:
            self._trim_store(self._disk, Stream.TELEMETRY)
            self._trim_due = 0

    def _trimmed(self, store: BatchStore) -> None:
        """Telemetry was let go of beside other work."""
        self._trim_due = 0
        store.release_pages()

    def _trim_store(self, store: BatchStore, stream: Stream) -> None:
        try:
            with store.transaction(durable=False):
                store.delete_through(stream, self._floor[stream])
            store.release_pages()
            self._has_shed = self._has_shed and any(one.count_shed() for one in self._stores())
        except StoreFailed as failure:
            self._degrade(failure.reason)  # `_floor` hides what could not be deleted

    def _insert_behind(self, store: BatchStore, outgoing: Outgoing, body: bytes) -> None:
        stream, seq = outgoing.batch.stream, outgoing.batch.seq
        self._next_id += 1
        if stream is Stream.TELEMETRY:
            store.insert(Entry(self._next_id, stream, None, body))
            return
        # Event batches behind the first were never taken by the server (they go one by one), so
        # their numbers may still change; the second half keeps its place before them.
        for one in self._stores():
            one.make_room_after(seq, outgoing.entry_id)
        store.insert(Entry(outgoing.entry_id + 1, stream, seq + 1, body))
        self._take_seq(stream)
        self._save_sequences(store)

    # a disk that takes nothing

    def _degrade(self, reason: str) -> None:
        if self._overflow is None:
            # Numbers given from here on may never reach the disk; see opening._resume.
            sound_marker(self._folder).unlink(missing_ok=True)
            self._overflow = BatchStore(None)
            self._may_be_unsent, self._fresh = True, None
        self._trouble = reason
        self._retry_at = self._monotonic() + _RETRY_DISK_S

    def _drain(self, overflow: BatchStore) -> None:
        before = dict(self._next_seq)
        try:
            with self._disk.transaction(durable=True):
                self._disk.take_from(overflow)
                for stream, floor in self._floor.items():
                    self._disk.delete_through(stream, floor)
                self._make_room(self._disk, self._cap_bytes)
                self._save_sequences(self._disk)
        except StoreFailed as failure:
            self._next_seq = before
            self._degrade(failure.reason)
            return
        overflow.close()
        self._overflow = None
        self._may_be_unsent = True
        self._trouble = None
        sound_marker(self._folder).touch()

    def _mark_closed(self) -> None:
        try:
            with self._disk.transaction(durable=True):
                self._disk.set_fact("closed", "yes")
                self._save_sequences(self._disk)
        except StoreFailed:
            sound_marker(self._folder).unlink(missing_ok=True)
