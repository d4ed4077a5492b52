"""The open minute: readings as they came, by node and minute, until the minute is sealed.

A minute is kept as the tables of its batches: these are columns already, so that noting one costs
an append, and roll-ups are made of six or twelve of them at once. Whole minutes may come late (a
backlog that waited in a spool) and are taken as long as nothing of that minute was sealed; what
comes for a sealed minute is counted and left out of roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock

import msgspec

from gpuwarden_server.history.domain import MINUTE_S, PACKS, pack_of
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_verdict.engine.telemetry import PlannedTable
from gpuwarden_wire.batches import Table
from gpuwarden_wire.schema import Schema

QUIET_S = 5.0
"""A minute is over when a later one has begun and nothing came for it for so long."""
SILENT_S = 75.0
"""A minute that nothing follows is over after this."""
MOST_BYTES = 448 << 20
"""Beyond this, all but a node's newest minute is sealed at once; beyond twice, readings drop."""
KEPT_SEALED = 64
_TABLE_BYTES = 600  # what a table weighs beside its numbers

Noted = tuple[Schema, Table]


@dataclass(frozen=True, slots=True)
class Taken:
    """A minute of a node that is to be sealed: `minute` counts from the epoch."""

    node_id: str
    minute: int
    tables: tuple[Noted, ...]


@dataclass(slots=True)
class _Minute:
    heard_at: float
    tables: list[Noted] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Node:
    newest: int = 0
    minutes: dict[int, _Minute] = field(default_factory=dict)
    latest: dict[str, Table] = field(default_factory=dict)
    sealed: dict[int, None] = field(default_factory=dict)


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    """Open minutes as a checkpoint keeps them."""

    schemas: dict[str, Schema]
    tables: dict[str, list[Table]]


_decoder = msgspec.msgpack.Decoder(_Saved)


class OpenMinutes:
    """Open minutes of all nodes; any thread."""

    def __init__(self, monotonic: Callable[[], float], meters: HistoryMeters) -> None:
        """Make it empty; `monotonic` gives seconds that never run backwards."""
        self._monotonic = monotonic
        self._meters = meters
        self._lock = Lock()
        self._packs: list[dict[str, _Node]] = [{} for _ in range(PACKS)]
        self._oldest = 0
        self._size = 0
        self._renamed: dict[str, str] = {}
        meters.open_bytes.set_function(lambda: self._size)

    def note(self, node_id: str, tables: Iterable[PlannedTable]) -> None:
        """Keep the tables of a batch. Cheap: called under the lock of the columnar state."""
        noted = [
            (
                schema,
                table
                if observed_at == table.observed_at
                else msgspec.structs.replace(table, observed_at=observed_at),
            )
            for schema, table, observed_at in tables
            if table.entities and schema.columns
        ]
        self._note(node_id, noted)

    def _note(self, node_id: str, noted: Iterable[Noted]) -> None:
        now = self._monotonic()
        with self._lock:
            nodes = self._packs[pack_of(node_id)]
            node = nodes.get(node_id)
            if node is None:
                node = nodes[node_id] = _Node()
            number, minute = -1, None
            for schema, table in noted:
                if number != (number := int(table.observed_at // MINUTE_S)):
                    minute = self._minute_of(node, number, now)
                if minute is None:
                    self._drop("late", schema, table)
                elif self._size > 2 * MOST_BYTES:
                    self._drop("memory", schema, table)
                else:
                    self._keep(node, minute, schema, table)

    def _minute_of(self, node: _Node, number: int, now: float) -> _Minute | None:
        """The open minute of a node, begun where it is new; None where it is sealed or too old."""
        minute = node.minutes.get(number)
        if minute is None:
            if number in node.sealed or number < self._oldest:
                return None
            minute = node.minutes[number] = _Minute(now)
            node.newest = max(node.newest, number)
        minute.heard_at = now
        return minute

    def _keep(self, node: _Node, minute: _Minute, schema: Schema, table: Table) -> None:
        before = node.latest.get(table.schema)
        if before is None or before.entities is not table.entities or table.missing:
            table = node.latest[table.schema] = _sharing(table, before)
        size = len(table.f32) + len(table.f64) + _TABLE_BYTES
        minute.tables.append((schema, table))
        minute.size += size
        self._size += size

    def packs(self) -> list[tuple[int, int]]:
        """Packs that have nodes, with how many."""
        return [(pack, len(nodes)) for pack, nodes in enumerate(self._packs) if nodes]

    def due(self, pack: int) -> list[Taken]:
        """Minutes of a pack that are over, oldest first; they stay until `confirm`."""
        now = self._monotonic()
        pressing = self._size > MOST_BYTES
        with self._lock:
            self._renamed.clear()
            found = [
                Taken(node_id, number, tuple(minute.tables))
                for node_id, node in self._packs[pack].items()
                for number, minute in node.minutes.items()
                if _is_over(now - minute.heard_at, number < node.newest, pressing)
            ]
        return sorted(found, key=lambda taken: taken.minute)

    def confirm(self, sealed: Iterable[Taken]) -> None:
        """These minutes are in the database: let them go; what came meanwhile was late."""
        with self._lock:
            for taken in sealed:
                name = self._renamed.get(taken.node_id, taken.node_id)
                node = self._packs[pack_of(name)][name]
                minute = node.minutes.pop(taken.minute)
                self._size -= minute.size
                for late in minute.tables[len(taken.tables) :]:
                    self._drop("late", *late)
                node.sealed[taken.minute] = None
                while len(node.sealed) > KEPT_SEALED:
                    del node.sealed[next(iter(node.sealed))]

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on, and what is open of it is sealed so.

        What `due` gave away before goes under the old name still: `confirm` finds it.
        """
        with self._lock:
            node = self._packs[pack_of(old)].pop(old, None)
            if node is not None:
                self._packs[pack_of(new)][new] = node
                self._renamed[old] = new

    def forget_before(self, at: float) -> None:
        """Take nothing older than `at`, epoch seconds: roll-ups of it are not kept any more."""
        self._oldest = int(at // MINUTE_S)

    def of_node(self, node_id: str) -> list[Noted]:
        """What is open of one node."""
        with self._lock:
            node = self._packs[pack_of(node_id)].get(node_id)
            if node is None:
                return []
            return [one for minute in node.minutes.values() for one in minute.tables]

    def snapshot(self, node_ids: Sequence[str]) -> Callable[[], bytes]:
        """What is open of some nodes, now; encoded when the result is called."""
        with self._lock:
            nodes = ((one, self._packs[pack_of(one)].get(one)) for one in node_ids)
            held = {
                node_id: [noted for minute in node.minutes.values() for noted in minute.tables]
                for node_id, node in nodes
                if node is not None
            }
        return lambda: _encode(held)

    def restore(self, body: bytes, present: Callable[[str], str]) -> None:
        """Take over what `snapshot` gave; `present` tells what a node in it is called now.

        Raises:
            msgspec.DecodeError: It is something else; nothing was taken over.
        """
        saved = _decoder.decode(body)
        for node_id, tables in saved.tables.items():
            self._note(present(node_id), [(saved.schemas[table.schema], table) for table in tables])

    def _drop(self, reason: str, schema: Schema, table: Table) -> None:
        self._meters.drops.labels(reason).inc(len(schema.columns) * len(table.entities))


def _sharing(table: Table, before: Table | None) -> Table:
    """The table with the names of the one before it, where they are the same: half its weight."""
    if before is None or before.entities != table.entities:
        return table
    missing = before.missing if before.missing == table.missing else table.missing
    return msgspec.structs.replace(
        table, schema=before.schema, entities=before.entities, missing=missing
    )


def _is_over(quiet_s: float, followed: bool, pressing: bool) -> bool:
    if quiet_s >= SILENT_S:
        return True
    return followed and (pressing or quiet_s >= QUIET_S)


def _encode(held: dict[str, list[Noted]]) -> bytes:
    schemas = {table.schema: schema for noted in held.values() for schema, table in noted}
    tables = {node_id: [table for _, table in noted] for node_id, noted in held.items() if noted}
    return msgspec.msgpack.encode(_Saved(schemas, tables))
