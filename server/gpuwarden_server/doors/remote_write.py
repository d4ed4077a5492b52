"""From samples of remote write to batches, as an agent of each node would send them."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from gpuwarden_exporters.gathering import meaning_of
from gpuwarden_server.core.clock import Clock
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.doors import repository
from gpuwarden_server.doors.meters import DoorMeters
from gpuwarden_server.doors.naming import node_of
from gpuwarden_server.doors.targets import SETTLE_S, Look, Series, Target, TargetMarks
from gpuwarden_server.doors.telling import NodeTelling
from gpuwarden_server.doors.write_request import Sample, WriteRequestError, read_labels
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.ingest.service import IngestService
from gpuwarden_server.ingest.sessions import Sessions
from gpuwarden_server.store.database import Database
from gpuwarden_server.store.writer import WriteFailed
from gpuwarden_verdict.engine.spools import DOOR_SPOOL
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.events import Event

MAX_NODES = 20_000
MAX_TARGETS = 64
MAX_SERIES_A_TARGET = 20_000
MAX_PLANNED = 2_000_000
"""Series remembered by their labels, those that mean nothing to us included."""
MAX_WAITING = 64
"""Looks of a node that wait for a database that takes no writes; then the oldest are dropped."""
OLDEST_S = 7200.0
"""What Prometheus itself keeps for a receiver that was away."""
AGENT_NAME = "remote-write"

_log = structlog.get_logger(__name__)


class Outcome(StrEnum):
    """What became of a sample."""

    TAKEN = "taken"
    UNKNOWN = "unknown_series"  # of no metric of ours
    NO_NODE = "no_node"  # its labels name no node
    REPEATED = "repeated"  # not newer than the last one of its series
    OLD = "too_old"
    FUTURE = "future"
    OUTSIDE = "outside_scope"  # of a node that the key is not for
    TOO_MANY = "too_many"  # nodes, pages or series


@dataclass(slots=True)
class _Parcel:
    """A look on its way: its events are made once, however often it is tried."""

    look: Look
    events: tuple[Event, ...]


@dataclass(slots=True, eq=False)
class DoorNode:
    """One node as remote write has it."""

    node_id: str
    telling: NodeTelling
    targets: dict[str, Target] = field(default_factory=dict)
    waiting: deque[_Parcel] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_refused: bool = False

    @property
    def interval_s(self) -> float:
        """Cadence of the quickest page, 0 unknown."""
        known = (one.interval_s for one in self.targets.values() if one.interval_s > 0)
        return min(known, default=0.0)


@dataclass(frozen=True, slots=True)
class DoorParts:
    """What the door works with.

    Attributes:
        database: state.db.
        service: Takes batches.
        sessions: Who speaks for which node.
        directory: Nodes and GPUs.
        clock: Time.
        meters: Figures.
        node_labels: Labels that name the node, in this order.
        gone_after_s: An agent that was silent for so long is gone: the door speaks for its node.
        future_tolerance_s: How far samples may be ahead of the server's clock.
    """

    database: Database
    service: IngestService
    sessions: Sessions
    directory: FleetDirectory
    clock: Clock
    meters: DoorMeters
    node_labels: tuple[str, ...]
    gone_after_s: float
    future_tolerance_s: float


class RemoteWriteDoor:
    """All that remote write tells; on the event loop."""

    def __init__(self, parts: DoorParts) -> None:
        self._parts = parts
        self._nodes: dict[str, DoorNode] = {}
        self._node_of: dict[Target, DoorNode] = {}
        self._plan: dict[bytes, Series | Outcome] = {}
        self._former_plan: dict[bytes, Series | Outcome] = {}
        self._marks: dict[tuple[str, str], TargetMarks] = {}
        self._due: dict[Target, float] = {}
        self._sent_schemas: set[str] = set()
        parts.meters.nodes.set_function(lambda: len(self._nodes))

    def load(self) -> None:
        """Read the marks of an earlier process."""
        with self._parts.database.read() as connection:
            self._marks = repository.load_marks(connection)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on, also where labels name it as before."""
        node = self._nodes.pop(old, None)
        if node is not None:
            node.node_id = node.telling.node_id = new
            self._nodes[new] = node
        marks = {key: held for key, held in self._marks.items() if key[0] == old}
        for (_, target), held in marks.items():
            del self._marks[old, target]
            self._marks[new, target] = held

    async def take(self, samples: Iterable[Sample], covers: Callable[[str], bool]) -> None:
        """Take the samples of one request.

        Args:
            samples: In the order in which they came.
            covers: Whether the caller may speak for a node.

        Raises:
            ProblemError: 400 where labels are none; 503 where the database takes no writes: what
                was told is kept and tried again.
        """
        counts: Counter[Outcome] = Counter()
        touched: set[Target] = set()
        try:
            for labels, at_ms, value in samples:
                counts[self._put(labels, at_ms, value, covers, touched)] += 1
        except WriteRequestError as error:
            raise ProblemError(400, "not_a_write_request", str(error)) from error
        finally:
            for outcome, count in counts.items():
                self._parts.meters.samples.labels(outcome).inc(count)
        for target in touched:
            if target.is_due:
                self._look(target)
        for node in {self._node_of[target] for target in touched}:
            await self._deliver(node)

    async def settle(self) -> None:
        """Read pages whose samples have waited for long enough."""
        now = self._parts.clock.monotonic()
        due = [target for target, at in self._due.items() if at <= now]
        for target in due:
            self._look(target)
        behind = (node for node in self._nodes.values() if node.waiting)
        for node in [*behind]:
            await self._deliver(node)

    def _put(
        self,
        labels: bytes,
        at_ms: int,
        value: float,
        covers: Callable[[str], bool],
        touched: set[Target],
    ) -> Outcome:
        series = self._plan.get(labels)
        if series is None:
            series = self._planned(labels)
        if isinstance(series, Outcome):
            return series
        now = self._parts.clock.now()
        if at_ms > (now + self._parts.future_tolerance_s) * 1000:
            return Outcome.FUTURE
        if at_ms < (now - OLDEST_S) * 1000:
            return Outcome.OLD
        target = series.target
        if not covers(self._node_of[target].node_id):
            return Outcome.OUTSIDE
        if not series.listed and target.series >= MAX_SERIES_A_TARGET:
            return Outcome.TOO_MANY
        if target.is_next(at_ms):
            self._look(target)
        if not target.put(series, at_ms, value):
            return Outcome.REPEATED
        touched.add(target)
        self._due.setdefault(target, self._parts.clock.monotonic() + SETTLE_S)
        return Outcome.TAKEN

    def _planned(self, labels: bytes) -> Series | Outcome:
        if len(self._plan) >= MAX_PLANNED // 2:
            self._former_plan, self._plan = self._plan, {}
        found = self._former_plan.get(labels)
        if found is None:
            found = self._first_look(read_labels(labels))
        if found is not Outcome.TOO_MANY:  # there may be room later
            self._plan[labels] = found
        return found

    def _first_look(self, labels: dict[str, str]) -> Series | Outcome:
        meaning = meaning_of(labels.pop("__name__", ""), labels)
        if not meaning.tells:
            return Outcome.UNKNOWN
        node_id = self._parts.service.present_name(node_of(labels, self._parts.node_labels))
        if not node_id:
            return Outcome.NO_NODE
        target = self._target(node_id, labels)
        return Outcome.TOO_MANY if target is None else Series(target, meaning)

    def _target(self, node_id: str, labels: dict[str, str]) -> Target | None:
        node = self._nodes.get(node_id)
        if node is None:
            if len(self._nodes) >= MAX_NODES:
                return None
            directory = self._parts.directory
            telling = NodeTelling.of(node_id, directory.node(node_id), directory.gpus_of(node_id))
            node = self._nodes[node_id] = DoorNode(node_id, telling)
        name = f"{labels.get('job', '')}/{labels.get('instance', '')}"[:250]
        target = node.targets.get(name)
        if target is None and len(node.targets) < MAX_TARGETS:
            target = Target(name, self._marks.pop((node_id, name), None))
            node.targets[name] = target
            self._node_of[target] = node
        return target

    def _look(self, target: Target) -> None:
        self._due.pop(target, None)
        if not target.waits:
            return
        look, node = target.look(), self._node_of[target]
        self._parts.meters.lag.observe(max(0.0, self._parts.clock.now() - look.at))
        if self._agent_speaks(node.node_id):
            self._parts.meters.looks.labels("agent").inc()
            return
        node.waiting.append(_Parcel(look, tuple(node.telling.events(look))))
        while len(node.waiting) > MAX_WAITING:
            node.waiting.popleft()
            self._parts.meters.looks.labels("dropped").inc()

    def _agent_speaks(self, node_id: str) -> bool:
        """Whether the node has an agent of its own, whose word goes before."""
        presence = self._parts.sessions.presence(node_id)
        if presence is None or presence.live_spool == DOOR_SPOOL:
            return False
        return presence.silent_s < self._parts.gone_after_s

    async def _deliver(self, node: DoorNode) -> None:
        async with node.lock:
            while node.waiting:
                parcel = node.waiting[0]
                await self._send_or_refuse(node, parcel)
                if node.waiting and node.waiting[0] is parcel:
                    node.waiting.popleft()

    async def _send_or_refuse(self, node: DoorNode, parcel: _Parcel) -> None:
        try:
            await self._send(node, parcel)
        except ProblemError as error:
            if error.retryable:
                raise
            self._note_refused(node, error)
        else:
            node.is_refused = False
            self._parts.meters.looks.labels("taken").inc()

    def _note_refused(self, node: DoorNode, error: ProblemError) -> None:
        self._parts.meters.looks.labels("refused").inc()
        if not node.is_refused:
            node.is_refused = True
            _log.warning("remote_write_refused", node_id=node.node_id, reason=str(error))

    async def _send(self, node: DoorNode, parcel: _Parcel) -> None:
        look = parcel.look
        if parcel.events:
            await self._take(node, look, Stream.EVENTS, events=parcel.events)
        if look.marks is not None:
            await self._keep(node, look.target, look.marks)
        made = look.tables()
        if made:
            fresh = {schema.hash: schema for _, schema in made}
            news = tuple(s for key, s in fresh.items() if key not in self._sent_schemas)
            tables = tuple(table for table, _ in made)
            await self._take(node, look, Stream.TELEMETRY, tables=tables, schemas=news)
            self._sent_schemas |= fresh.keys()

    async def _take(self, node: DoorNode, look: Look, stream: Stream, **content: object) -> None:
        spool = self._parts.sessions.of(node.node_id).spools.get(DOOR_SPOOL)
        header = {
            "version": WIRE_VERSION,
            "node_id": node.node_id,
            "spool_id": DOOR_SPOOL,
            "stream": stream,
            "seq": (spool.ledgers[stream].applied_seq if spool else 0) + 1,
            "boot_id": node.telling.boot_id,
            "agent_version": AGENT_NAME,
            "sent_at": self._parts.clock.now(),
            "interval_s": node.interval_s,
        }
        batch = Batch(**header, **content)  # type: ignore[arg-type]  # names and types stand above
        await self._parts.service.take(batch, (AGENT_NAME, 0))

    async def _keep(self, node: DoorNode, target: Target, marks: TargetMarks) -> None:
        node_id, name = node.node_id, target.name
        write = self._parts.database.writer.submit(
            lambda connection: repository.save_marks(connection, node_id, name, marks)
        )
        try:
            await asyncio.wrap_future(write)
        except WriteFailed as error:
            raise ProblemError(
                503, "storage_failed", "what was told could not be made durable"
            ) from error
