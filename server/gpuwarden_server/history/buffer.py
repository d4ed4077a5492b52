"""The open minute: readings as they came, by node and minute, until the minute is sealed.

A minute is kept as the tables of its batches: these are columns already, so that noting one costs
an append, and roll-ups are made of six or twelve of them at once. Whole minutes may come late (a
backlog that waited in a spool) and are taken as long as nothing of that minute was sealed; what
comes for a sealed minute is counted and left out of roll-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import msgspec

from gpuwarden_server.history.domain import MINUTE_S, PACKS, pack_of
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_verdict.windows import (
    JoinedTables,
    Missing,
    TableLayout,
    join_as,
    join_tables,
    layout_of,
)
from gpuwarden_wire.batches import Table
from gpuwarden_wire.schema import Schema

QUIET_S = 5.0
"""A minute is over when a later one has begun and nothing came for it for so long."""
SILENT_S = 75.0
"""A minute that nothing follows is over after this."""
MOST_BYTES = 448 << 20
"""Beyond this, all but a node's newest minute is sealed at once; beyond twice, readings drop."""
KEPT_SEALED = 64
_BATCH_BYTES = 500  # what a batch weighs beside its numbers

_Name = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Taken:
    """A minute of a node that is to be sealed: `minute` counts from the epoch."""

    node_id: str
    minute: int
    batches: tuple[JoinedTables, ...]


@dataclass(slots=True)
class _Minute:
    heard_at: float
    batches: list[JoinedTables] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Node:
    newest: int = 0
    minutes: dict[int, _Minute] = field(default_factory=dict)
    missing: Missing = ()
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

    def note(self, node_id: str, batch: JoinedTables) -> None:
        """Keep a batch. Cheap: called under the lock of the columnar state."""
        now = self._monotonic()
        with self._lock:
            nodes = self._packs[pack_of(node_id)]
            node = nodes.get(node_id)
            if node is None:
                node = nodes[node_id] = _Node()
            minutes = {int(at // MINUTE_S) for at in batch.times}
            if len(minutes) == 1:
                self._keep(node, minutes.pop(), batch, now)
                return
            for schema, table in zip(batch.layout.schemas, batch.tables(), strict=True):
                own = join_tables([(schema, table, table.observed_at)])
                self._keep(node, int(table.observed_at // MINUTE_S), own, now)

    def _keep(self, node: _Node, number: int, batch: JoinedTables, now: float) -> None:
        minute = node.minutes.get(number)
        if self._size > 2 * MOST_BYTES:
            self._drop("memory", batch)
            return
        if minute is None:
            if number in node.sealed or number < self._oldest:
                self._drop("late", batch)
                return
            minute = node.minutes[number] = _Minute(now)
            node.newest = max(node.newest, number)
        if batch.missing and batch.missing == node.missing:
            batch = batch._replace(missing=node.missing)  # told again in each batch: kept once
        node.missing = batch.missing or node.missing
        size = len(batch.f32) + len(batch.f64) + _BATCH_BYTES
        minute.batches.append(batch)
        minute.heard_at = now
        minute.size += size
        self._size += size

    @property
    def size(self) -> int:
        """Bytes of all that is open."""
        return self._size

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
                Taken(node_id, number, tuple(minute.batches))
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
                for late in minute.batches[len(taken.batches) :]:
                    self._drop("late", late)
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

    def of_node(self, node_id: str) -> list[JoinedTables]:
        """What is open of one node."""
        with self._lock:
            node = self._packs[pack_of(node_id)].get(node_id)
            if node is None:
                return []
            return [one for minute in node.minutes.values() for one in minute.batches]

    def snapshot(self, node_ids: Sequence[str]) -> Callable[[], bytes]:
        """What is open of some nodes, now; encoded when the result is called."""
        with self._lock:
            nodes = ((one, self._packs[pack_of(one)].get(one)) for one in node_ids)
            held = {
                node_id: [one for minute in node.minutes.values() for one in minute.batches]
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
            for batch in _rejoined(saved.schemas, tables):
                self.note(present(node_id), batch)

    def _drop(self, reason: str, batch: JoinedTables) -> None:
        self._meters.drops.labels(reason).inc(batch.layout.cells)


def _rejoined(schemas: Mapping[str, Schema], tables: Iterable[Table]) -> Iterator[JoinedTables]:
    """A node's tables as batches again: one ends where a table of it comes again."""
    layouts: dict[tuple[_Name, ...], TableLayout] = {}
    part: dict[_Name, Table] = {}
    for table in tables:
        name = table.schema, table.entities
        if name in part:
            yield _joined(schemas, part, layouts)
            part = {}
        part[name] = table
    if part:
        yield _joined(schemas, part, layouts)


def _joined(
    schemas: Mapping[str, Schema],
    part: Mapping[_Name, Table],
    layouts: dict[tuple[_Name, ...], TableLayout],
) -> JoinedTables:
    names = tuple(part)
    layout = layouts.get(names)
    if layout is None:
        hashes, entities = zip(*names, strict=True)
        layout = layouts[names] = layout_of([schemas[name] for name in hashes], hashes, entities)
    return join_as(layout, list(part.values()), tuple(t.observed_at for t in part.values()))


def _is_over(quiet_s: float, followed: bool, pressing: bool) -> bool:
    if quiet_s >= SILENT_S:
        return True
    return followed and (pressing or quiet_s >= QUIET_S)


def _encode(held: dict[str, list[JoinedTables]]) -> bytes:
    schemas = {
        name: schema
        for batches in held.values()
        for layout in {id(one.layout): one.layout for one in batches}.values()
        for name, schema in zip(layout.hashes, layout.schemas, strict=True)
    }
    tables = {
        node_id: [table for one in batches for table in one.tables() if table.entities]
        for node_id, batches in held.items()
        if batches
    }
    return msgspec.msgpack.encode(_Saved(schemas, tables))
