"""What the front door remembers of each node between batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpuwarden_server.core.clock import Clock
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.engine.sequences import SequenceLedger
from gpuwarden_verdict.engine.spools import DOOR_SPOOL, Standing
from gpuwarden_verdict.windows import TableLayout
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

Connection = tuple[str, int]
"""Client address and port: names one TCP connection."""

MAX_CONNECTIONS = 4
Rows = npt.NDArray[np.int64]
NamedEntities = tuple[EntityKind, tuple[str, ...]]
"""The entities of a table."""
UrgentPlaces = tuple[tuple[slice, ...], tuple[slice, ...]]
"""Parts of a float32 block, and of a float64 block."""


@dataclass(slots=True)
class SpoolSession:
    """One spool of a node.

    Attributes:
        standing: live or superseded.
        ledgers: Sequences by stream.
        clock_high: Latest time that its clock has shown in a batch of events, epoch seconds; 0
            before the first since the start.
    """

    standing: Standing
    ledgers: dict[Stream, SequenceLedger] = field(
        default_factory=lambda: {stream: SequenceLedger() for stream in Stream}
    )
    clock_high: float = 0.0


@dataclass(slots=True)
class KnownTable:
    """A table that a node sent before: what need not be looked at again.

    Attributes:
        schema: Columns.
        hash: Its name on the wire.
        entities: All of them the node's own.
        rows: Their rows in the columnar state.
        generation: FleetState.generation that the rows belong to.
        ownership: NodeDirectory.ownership by which the entities are the node's own.
        urgent: Where in its float32 block and in its float64 block the columns lie that announce a
            fault.
        urgent_seen: What stood there last.
    """

    schema: Schema
    hash: str
    entities: tuple[str, ...]
    rows: Rows
    generation: int
    ownership: int
    urgent: UrgentPlaces
    urgent_seen: bytes


@dataclass(slots=True)
class KnownLayout:
    """A set of tables that a node sent together before: its batches need hardly be looked at.

    Attributes:
        names: Schema and entities of each table, as they come.
        layout: The tables, all of them known, in the session's own strings.
        f32_bytes: Size of each one's float32 block.
        f64_bytes: Size of each one's float64 block.
        rows: Of each, the entities' rows in the columnar state.
        generation: FleetState.generation that the rows belong to.
        ownership: NodeDirectory.ownership by which the entities are the node's own.
        urgent: Tables with columns that announce a fault, and where these lie in the joined blocks.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]
    layout: TableLayout
    f32_bytes: list[int]
    f64_bytes: list[int]
    rows: tuple[Rows, ...]
    generation: int
    ownership: int
    urgent: tuple[tuple[KnownTable, UrgentPlaces], ...]


@dataclass(slots=True)
class NodeSession:
    """One node, on the event loop.

    Attributes:
        lock: Held while a batch of this node is taken.
        spools: By id.
        live_spool: "" before the first.
        refused_spool: Last spool that was refused, "" none since the last take-over.
        last_seen_at: Epoch seconds of the last accepted batch.
        heard_at: Monotonic time of the live spool's last batch.
        interval_s: Its cadence.
        boot_id: Boot of its last batch.
        more_events: Batches of events wait behind the last one.
        markers: Verdict sent last, by connection.
        rows: Rows of the columnar state, by kind and entities as they come.
        rows_generation: FleetState.generation that they belong to.
        known: Tables as they come, by schema and entities.
        layouts: Sets of tables that came together, by their names.
        layout: That of the latest batch, None before the first.
        queued: A batch of it waits in the fast lane.
        entities: All entities that it ever named, as tables name them.
        telemetry_dirty: Telemetry applied since the last checkpoint.
        seen_dirty: Heard of since last_seen_at was last written.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    spools: dict[str, SpoolSession] = field(default_factory=dict)
    live_spool: str = ""
    refused_spool: str = ""
    last_seen_at: float = 0.0
    heard_at: float = 0.0
    interval_s: float = 0.0
    boot_id: str = ""
    more_events: bool = False
    markers: dict[Connection, int] = field(default_factory=dict)
    rows: dict[tuple[EntityKind, tuple[str, ...]], Rows] = field(default_factory=dict)
    rows_generation: int = 0
    known: dict[tuple[str, tuple[str, ...]], KnownTable] = field(default_factory=dict)
    layouts: dict[tuple[tuple[str, tuple[str, ...]], ...], KnownLayout] = field(
        default_factory=dict
    )
    layout: KnownLayout | None = None
    queued: bool = False
    entities: frozenset[NamedEntities] = frozenset()
    telemetry_dirty: bool = False
    seen_dirty: bool = False

    @property
    def newest_agent_spool(self) -> str:
        """The spool of an agent that came last, "" where none ever did."""
        return next((one for one in reversed(self.spools) if one != DOOR_SPOOL), "")

    def forget_tables(self) -> None:
        """Look at its tables anew: rows have moved, or a GPU came back from another node."""
        self.rows.clear()
        self.known.clear()
        self.layouts.clear()
        self.layout = None

    def remember_marker(self, connection: Connection, marker: int) -> None:
        """Note the verdict sent on a connection; old connections are forgotten."""
        self.markers.pop(connection, None)
        self.markers[connection] = marker
        while len(self.markers) > MAX_CONNECTIONS:
            del self.markers[next(iter(self.markers))]


class Sessions:
    """All nodes' sessions. Changed on the event loop; `presence` may be read from any thread."""

    def __init__(self, clock: Clock, silent_after_s: float) -> None:
        """Make none.

        Args:
            clock: Time.
            silent_after_s: Seconds without a batch after which a node is not live.
        """
        self._clock = clock
        self._silent_after_s = silent_after_s
        self._sessions: dict[str, NodeSession] = {}

    def of(self, node_id: str) -> NodeSession:
        """The node's session, made where it is new."""
        session = self._sessions.get(node_id)
        if session is None:
            session = self._sessions[node_id] = NodeSession()
        return session

    def find(self, node_id: str) -> NodeSession | None:
        """The node's session, None where it is new."""
        return self._sessions.get(node_id)

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; who holds its lock calls this."""
        session = self._sessions.pop(old, None)
        if session is not None:
            session.forget_tables()
            self._sessions[new] = session

    def items(self) -> list[tuple[str, NodeSession]]:
        """All sessions by node."""
        return list(self._sessions.items())

    def is_live(self, node_id: str) -> bool:
        """Whether a batch came within `silent_after_s`."""
        presence = self.presence(node_id)
        return presence is not None and not presence.is_silent(self._silent_after_s)

    def presence(self, node_id: str) -> Presence | None:
        """When the node was last heard of; None where it never was."""
        session = self._sessions.get(node_id)
        if session is None or not session.live_spool:
            return None
        return Presence(
            node_id=node_id,
            last_seen_at=session.last_seen_at,
            silent_s=max(0.0, self._clock.monotonic() - session.heard_at),
            interval_s=session.interval_s,
            boot_id=session.boot_id,
            more_events=session.more_events,
            live_spool=session.live_spool,
            refused_spool=session.refused_spool,
        )

    def presences(self) -> Iterator[Presence]:
        """All nodes that were ever heard of."""
        for node_id in list(self._sessions):
            presence = self.presence(node_id)
            if presence is not None:
                yield presence
