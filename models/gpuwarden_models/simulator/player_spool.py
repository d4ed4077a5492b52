"""What one played node holds until the server says that it is durable."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gpuwarden_wire.acknowledgement import Acknowledgement
from gpuwarden_wire.batches import WIRE_VERSION, Batch, ShedRange, Stream, Table
from gpuwarden_wire.events import Event
from gpuwarden_wire.schema import Schema
from gpuwarden_wire.version import __version__

MAX_TELEMETRY = 900
"""Telemetry batches kept a node: a quarter of an hour at one a second. Events have no limit."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 2.0


@dataclass(slots=True)
class _Lane:
    """One stream: batches to deliver, batches applied but not yet durable, the next number."""

    pending: deque[Batch] = field(default_factory=deque)
    applied: deque[Batch] = field(default_factory=deque)
    next_seq: int = 1


class NodeSpool:
    """Batches of one node in two streams; not thread-safe, its owner holds a lock.

    Attributes:
        node_id: The node.
        spool_id: Random, so that a second run of the same fleet is another spool.
        rejected: Batches that the server refused for good.
        shed: Telemetry batches dropped before delivery.
        held_until: Monotonic seconds before which nothing is sent: the server said wait.
        backoff_s: How long the next such wait is.
        late: Whether readings are held back for now; events are not.
        trouble: Latest refusal or broken connection, "" where the last answer was good.
    """

    def __init__(self, node_id: str, boot_id: str, interval_s: float) -> None:
        """An empty spool."""
        self.node_id, self.boot_id, self.interval_s = node_id, boot_id, interval_s
        self.spool_id = secrets.token_hex(16)
        self.rejected = 0
        self.shed = 0
        self.held_until = 0.0
        self.backoff_s = FIRST_BACKOFF_S
        self.trouble = ""
        self.late = False
        self._lanes = {stream: _Lane() for stream in Stream}
        self._undeclared: list[ShedRange] = []

    def seal(
        self,
        stream: Stream,
        at: float,
        tables: Sequence[Table] = (),
        events: Sequence[Event] = (),
        schemas: Sequence[Schema] = (),
    ) -> None:
        """Add one batch to a stream; the oldest telemetry is shed where it does not fit."""
        lane = self._lanes[stream]
        batch = Batch(
            version=WIRE_VERSION,
            node_id=self.node_id,
            spool_id=self.spool_id,
            stream=stream,
            seq=lane.next_seq,
            boot_id=self.boot_id,
            agent_version=f"{__version__}+simulated",
            sent_at=at,
            interval_s=self.interval_s,
            shed=tuple(self._undeclared),
            schemas=tuple(schemas) if lane.next_seq == 1 else (),
            tables=tuple(tables),
            events=tuple(events),
        )
        self._undeclared = []
        lane.next_seq += 1
        lane.pending.append(batch)
        if stream is Stream.TELEMETRY and len(lane.pending) + len(lane.applied) > MAX_TELEMETRY:
            self._shed_oldest(lane)

    def next_batch(self, now: float) -> Batch | None:
        """The next batch to deliver, events first; None where all are applied or the node waits.

        Args:
            now: Monotonic seconds.
        """
        if now < self.held_until:
            return None
        for stream, lane in self._lanes.items():
            if lane.pending and not (self.late and stream is Stream.TELEMETRY):
                return lane.pending[0]
        return None

    def acknowledge(self, batch: Batch, answer: Acknowledgement) -> None:
        """The server applied a batch; forget what is durable."""
        self.backoff_s, self.trouble = FIRST_BACKOFF_S, ""
        lane = self._take(batch)
        lane.applied.append(batch)
        while lane.applied and lane.applied[0].seq <= answer.durable_seq:
            lane.applied.popleft()

    def reject(self, batch: Batch) -> None:
        """The server refuses a batch for good: go on without it."""
        self._take(batch)
        self.rejected += 1

    def add_schemas(self, batch: Batch, schemas: Sequence[Schema]) -> None:
        """The server asks for definitions: the same batch carries them from now on."""
        lane = self._take(batch)
        lane.pending.appendleft(msgspec.structs.replace(batch, schemas=tuple(schemas)))

    def hold(self, now: float) -> None:
        """The server said wait: a little longer each time, at most LONGEST_BACKOFF_S."""
        self.held_until = now + self.backoff_s
        self.backoff_s = min(2.0 * self.backoff_s, LONGEST_BACKOFF_S)

    def rewind(self, reason: str) -> None:
        """The connection broke: what is not known to be durable is delivered again."""
        self.trouble = reason
        for lane in self._lanes.values():
            lane.pending.extendleft(reversed(lane.applied))
            lane.applied.clear()

    def waiting(self) -> int:
        """Batches not yet applied."""
        return sum(len(lane.pending) for lane in self._lanes.values())

    def held_back(self) -> int:
        """Of these, readings that are late."""
        return len(self._lanes[Stream.TELEMETRY].pending) if self.late else 0

    def _take(self, batch: Batch) -> _Lane:
        lane = self._lanes[batch.stream]
        if lane.pending and lane.pending[0].seq == batch.seq:
            lane.pending.popleft()
        return lane

    def _shed_oldest(self, lane: _Lane) -> None:
        if lane.applied:  # only its durability was open
            lane.applied.popleft()
            return
        # The first may be on its way: the one behind it goes.
        lost = lane.pending[1]
        del lane.pending[1]
        self.shed += 1
        self._undeclared.append(ShedRange(Stream.TELEMETRY, lost.seq, lost.seq))
