"""Plays frames to a server as if every node had its own agent.

Nothing is lost to a server that dies: a batch is kept until the server calls it durable, and after
a broken connection everything not known to be durable is delivered again, in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from threading import Event as Flag
from typing import Protocol

from gpuwarden_models.frames import Frame, wire_tables
from gpuwarden_models.simulator.player_link import Answer, Link, LinkBroken, Outcome
from gpuwarden_models.simulator.player_spool import NodeSpool
from gpuwarden_models.simulator.story import ScriptedFault
from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import Batch, Stream
from gpuwarden_wire.schema import Schema

_RECONNECT_S = 0.2
_UNPACED_LIMIT = 64  # batches a sender waits for when frames are not paced by the clock


class FrameSource(Protocol):
    """What the player plays; `Simulation` is one."""

    def next_frame(self) -> Frame:
        """The next moment of the fleet."""
        ...

    def inject(self, fault: ScriptedFault) -> None:
        """Start a fault with the next frame."""
        ...

    def repair(self, entity: str) -> int:
        """End all faults on an entity with the next frame."""
        ...


@dataclass(frozen=True, slots=True)
class PlayerCounters:
    """How the playing goes.

    Attributes:
        frames: Frames played.
        applied: Batches that the server applied or had applied.
        replayed: Of these, such that it knew already.
        waiting: Batches not applied yet.
        rejected: Batches refused for good.
        shed: Telemetry batches dropped, and declared, because too many waited.
        reconnects: Broken connections.
        events_sealed: Events made so far.
        events_acknowledged: Events that the server acknowledged.
        trouble: A refusal or broken connection that still holds, "" where all goes well.
    """

    frames: int
    applied: int
    replayed: int
    waiting: int
    rejected: int
    shed: int
    reconnects: int
    events_sealed: int
    events_acknowledged: int
    trouble: str


class WirePlayer:
    """Plays a frame source over HTTP, in threads of its own."""

    def __init__(
        self,
        frames: FrameSource,
        url: str,
        key_of: Callable[[str], str],
        interval_s: float,
        *,
        paced: bool = True,
        connections: int = 2,
    ) -> None:
        """A player that has not started.

        Args:
            frames: What to play; its frames should be `interval_s` apart and, where the server
                judges by the clock, begin now.
            url: Address of the server, "http://127.0.0.1:8750".
            key_of: Bearer key of a node.
            interval_s: Cadence that batches declare.
            paced: Play each frame at its time by the clock; else as fast as the server takes.
            connections: Senders; nodes are dealt out among them.

        Raises:
            ValueError: `url` is no address.
        """
        self._source, self._key_of = frames, key_of
        self._interval_s, self._paced = interval_s, paced
        self._stop, self._closed, self._changed = Flag(), Flag(), Condition()
        self._spools: dict[str, NodeSpool] = {}
        self._schemas: tuple[Schema, ...] = ()
        self._frames = self._applied = self._replayed = self._reconnects = 0
        self._sealed: dict[str, None] = {}
        self._acknowledged: set[str] = set()
        self._links = [Link(url) for _ in range(connections)]
        self._producer = Thread(target=self._produce, name="player-frames", daemon=True)
        self._senders = [
            Thread(target=self._deliver, args=(number,), name=f"player-{number}", daemon=True)
            for number in range(connections)
        ]

    def start(self) -> None:
        """Start playing."""
        for thread in (self._producer, *self._senders):
            thread.start()

    def stop(self, drain_s: float = 5.0) -> bool:
        """Stop making frames, deliver what waits for at most `drain_s`, and end the threads.

        Returns:
            True where everything was applied.
        """
        self._stop.set()
        _join(self._producer)
        drained = self.wait_applied(drain_s)
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._senders:
            _join(thread)
        for link in self._links:
            link.close()
        return drained

    def wait_applied(self, timeout_s: float) -> bool:
        """Wait until no batch waits; False where `timeout_s` passed before."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting() == 0, timeout_s)

    def inject(self, fault: ScriptedFault) -> None:
        """Start a fault with the next frame.

        Raises:
            ValueError: The fleet has no such entity.
        """
        self._source.inject(fault)

    def repair(self, entity: str) -> int:
        """Repair an entity with the next frame; returns how many faults ended."""
        return self._source.repair(entity)

    def event_ids(self) -> tuple[str, ...]:
        """Ids of all events made so far, in order."""
        with self._changed:
            return tuple(self._sealed)

    def acknowledged_event_ids(self) -> frozenset[str]:
        """Ids of all events that the server acknowledged: it may lose none of these."""
        with self._changed:
            return frozenset(self._acknowledged)

    def counters(self) -> PlayerCounters:
        """How it goes, at one moment."""
        with self._changed:
            spools = self._spools.values()
            return PlayerCounters(
                frames=self._frames,
                applied=self._applied,
                replayed=self._replayed,
                waiting=self._waiting(),
                rejected=sum(spool.rejected for spool in spools),
                shed=sum(spool.shed for spool in spools),
                reconnects=self._reconnects,
                events_sealed=len(self._sealed),
                events_acknowledged=len(self._acknowledged),
                trouble=next((spool.trouble for spool in spools if spool.trouble), ""),
            )

    def _waiting(self) -> int:
        return sum(spool.waiting() for spool in self._spools.values())

    def _due(self) -> int:
        return self._waiting() - sum(spool.held_back() for spool in self._spools.values())

    def _produce(self) -> None:
        while not self._stop.is_set():
            frame = self._source.next_frame()
            with self._changed:
                self._seal(frame)
                self._changed.notify_all()
            if self._paced:
                self._stop.wait(max(frame.at + self._interval_s - time.time(), 0.0))
            else:
                self._wait_for_room()
        with self._changed:
            for spool in self._spools.values():
                spool.late = False
            self._changed.notify_all()

    def _wait_for_room(self) -> None:
        with self._changed:
            while self._due() >= _UNPACED_LIMIT and not self._stop.is_set():
                self._changed.wait(0.1)

    def _seal(self, frame: Frame) -> None:
        self._frames += 1
        self._schemas = tuple(table.schema for table in frame.tables)
        events: dict[str, list[int]] = {}
        for number, event in enumerate(frame.events):
            events.setdefault(event.node_id, []).append(number)
        for row, node_id in enumerate(frame.nodes):
            spool = self._spools.get(node_id)
            if spool is None:
                spool = NodeSpool(node_id, frame.boot_ids[row], self._interval_s)
                self._spools[node_id] = spool
            spool.boot_id, spool.late = frame.boot_ids[row], row in frame.late
            own = [frame.events[number].event for number in events.get(node_id, ())]
            if own:
                spool.seal(Stream.EVENTS, frame.at, events=own)
                self._sealed.update((event.id, None) for event in own)
            tables = wire_tables(frame, row)
            if tables:
                spool.seal(Stream.TELEMETRY, frame.at, tables=tables, schemas=self._schemas)

    def _deliver(self, number: int) -> None:
        link = self._links[number]
        while not self._closed.is_set():
            batch = self._next_batch(number)
            if batch is None:
                continue
            try:
                self._settle(batch, link.send(batch, self._key_of(batch.node_id)))
            except LinkBroken as error:
                self._rewind(number, str(error))
                self._closed.wait(_RECONNECT_S)

    def _own_spools(self, number: int) -> Sequence[NodeSpool]:
        return list(self._spools.values())[number :: len(self._links)]

    def _next_batch(self, number: int) -> Batch | None:
        with self._changed:
            found = self._first_waiting(number)
            if found is None:
                self._changed.wait(0.1)
            return found

    def _first_waiting(self, number: int) -> Batch | None:
        now = time.monotonic()
        waiting = (spool.next_batch(now) for spool in self._own_spools(number))
        return min(
            (batch for batch in waiting if batch is not None),
            key=lambda batch: (batch.stream is Stream.TELEMETRY, batch.sent_at),
            default=None,
        )

    def _rewind(self, number: int, reason: str) -> None:
        with self._changed:
            self._reconnects += 1
            for spool in self._own_spools(number):
                spool.rewind(reason)

    def _settle(self, batch: Batch, answer: Answer) -> None:
        with self._changed:
            spool = self._spools[batch.node_id]
            spool.trouble = answer.reason or spool.trouble
            match answer.outcome:
                case Outcome.APPLIED if answer.acknowledgement is not None:
                    self._count_applied(spool, batch, answer.acknowledgement)
                case Outcome.SCHEMAS_WANTED:
                    spool.add_schemas(batch, self._schemas)
                case Outcome.REJECTED:
                    spool.reject(batch)
                case Outcome.RETRY:
                    spool.hold(time.monotonic())
            self._changed.notify_all()

    def _count_applied(
        self, spool: NodeSpool, batch: Batch, acknowledgement: Acknowledgement
    ) -> None:
        self._applied += 1
        self._replayed += acknowledgement.replayed
        self._acknowledged.update(event.id for event in batch.events)
        spool.acknowledge(batch, acknowledgement)


def _join(thread: Thread) -> None:
    """Wait for its end; a signal during `start` may have left it unstarted."""
    if thread.ident is not None:
        thread.join()
