"""From the tables of a minute to readings and roll-ups, all nodes of a pack together."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence

import numpy as np

from gpuwarden_server.history.domain import MINUTE_S
from gpuwarden_verdict.segments.blocks import (
    F64,
    MOST_REASONS,
    NARROW,
    U8,
    WIDE,
    AnyArray,
    Block,
    Reason,
    Row,
    narrow_of,
    side_by_side,
)
from gpuwarden_verdict.segments.rollup import roll_up_readings
from gpuwarden_verdict.windows import JoinedTables
from gpuwarden_wire.batches import MissingKind, Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Column, Schema

_UNREAD = Reason(MissingKind.UNAVAILABLE, "")

LastKey = tuple[EntityKind, tuple[Row, ...], str, int]
Last = tuple[float, tuple[Column, ...], F64]
"""When, which columns, and where the counters stood."""


def readings_of(node_id: str, batches: Sequence[JoinedTables]) -> list[Block]:
    """A node's batches as blocks, one for each set of columns and entities, times in order.

    Of tables of one moment the later holds. Infinities are no numbers.
    """
    regular = _regular_blocks(node_id, batches)
    if regular is not None:
        return regular
    groups: dict[tuple[str, tuple[str, ...]], tuple[Schema, dict[float, Table]]] = {}
    for batch in batches:
        for schema, table in zip(batch.layout.schemas, batch.tables(), strict=True):
            if table.entities and schema.columns:
                group = groups.setdefault((table.schema, table.entities), (schema, {}))
                group[1][table.observed_at] = table
    return [_block(node_id, schema, tables) for schema, tables in groups.values()]


def _regular_blocks(node_id: str, batches: Sequence[JoinedTables]) -> list[Block] | None:
    """As `readings_of`, where all batches are alike, in order, and miss nothing; None elsewhere."""
    if not batches or any(one.layout is not batches[0].layout or one.missing for one in batches):
        return None
    layout = batches[0].layout
    times = np.array([one.times for one in batches])
    narrow = np.frombuffer(b"".join([one.f32 for one in batches]), "<f4")
    wide = np.frombuffer(b"".join([one.f64 for one in batches]), "<f8")
    rising = len(set(layout.hashes)) == len(layout.hashes) and bool(
        (np.diff(times, axis=0) > 0).all()
    )
    if not (rising and np.isfinite(narrow).all() and np.isfinite(wide).all()):
        return None
    narrow = narrow.reshape(len(batches), layout.narrow[-1])
    wide = wide.reshape(len(batches), layout.wide[-1])
    return [
        Block(
            kind=schema.entity_kind,
            columns=schema.columns,
            rows=tuple([Row(node_id, entity) for entity in layout.entities[number]]),
            times=times[:, number],
            planes={
                NARROW: _of_table(narrow, layout.narrow, number, len(layout.entities[number])),
                WIDE: _of_table(wide, layout.wide, number, len(layout.entities[number])),
            },
            why=np.zeros(
                (len(batches), len(schema.columns), len(layout.entities[number])), np.uint8
            ),
        )
        for number, schema in enumerate(layout.schemas)
        if layout.entities[number] and schema.columns
    ]


def _of_table(numbers: AnyArray, places: Sequence[int], number: int, rows: int) -> AnyArray:
    begin, end = places[number], places[number + 1]
    return numbers[:, begin:end].reshape(len(numbers), (end - begin) // rows, rows)


class Sealer:
    """Makes roll-ups; remembers where each counter stood, so that minutes join without a gap."""

    def __init__(self) -> None:
        self._news: dict[LastKey, Last] = {}
        self._last: MutableMapping[LastKey, Last] = self._news
        self._renamed: dict[str, str] = {}

    def fork(self) -> Sealer:
        """One that begins with what this one remembers and keeps its own news to itself."""
        self._renamed.clear()
        forked = Sealer()
        forked._last = ChainMap(forked._news, self._last)
        return forked

    def adopt(self, fork: Sealer) -> None:
        """Remember what a fork came to know: what it made is in the database."""
        for key, last in fork._news.items():
            name = key[1][0].node_id
            self._last[_named(key, self._renamed.get(name, name))] = last

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; a fork that is at work meanwhile need not know."""
        self._renamed[old] = new
        for key in [key for key in list(self._last) if key[1][0].node_id == old]:
            self._last[_named(key, new)] = self._last.pop(key)

    def remember(self, rollups: Iterable[Block]) -> None:
        """Note where counters stood in these roll-ups, each of one step."""
        for block in rollups:
            at = float(block.times[-1])
            for own in block.by_node():
                known = self._last.get(_key_of(own))
                if known is None or known[0] <= at:
                    self._last[_key_of(own)] = (at, own.columns, own.planes["counter"][-1])

    def roll_up(self, readings: Iterable[Block]) -> list[Block]:
        """Roll-ups of readings of any nodes, one block for all nodes that read alike.

        Args:
            readings: Blocks of one minute.
        """
        groups: dict[tuple[EntityKind, int, int], list[Block]] = {}
        for block in readings:
            # a schema's columns are one object for all nodes, and hashing them takes longer
            alike = (block.kind, id(block.columns), block.times.size)
            groups.setdefault(alike, []).append(block)
        return [
            roll_up_readings(side_by_side(blocks), MINUTE_S, self._before(blocks))
            for blocks in groups.values()
        ]

    def by_minute(self, readings: Iterable[Block]) -> list[Block]:
        """Roll-ups of one node's readings of any minutes; nothing is remembered."""
        rolled = []
        for block in readings:
            minutes = np.unique(block.times // MINUTE_S)
            for minute in minutes.tolist():
                part = block.between(minute * MINUTE_S, (minute + 1) * MINUTE_S)
                if part is not None:
                    rolled += self.roll_up([part])
        return rolled

    def _before(self, blocks: Sequence[Block]) -> F64:
        """Where the counters stood before; NaN where that is not known, or is not before."""
        parts = []
        for block in blocks:
            known = self._last.get(_key_of(block))
            if known is None or known[0] >= block.times[0] or known[1] != block.columns:
                parts.append(np.full(block.planes[WIDE].shape[1:], np.nan))
            else:
                parts.append(known[2])
        return np.concatenate(parts, axis=1)


def _key_of(block: Block) -> LastKey:
    """Names a node's table, short of its columns: who looks up compares those."""
    return block.kind, block.rows, block.columns[0].name, len(block.columns)


def _named(key: LastKey, node_id: str) -> LastKey:
    kind, rows, column, columns = key
    return kind, tuple(row._replace(node_id=node_id) for row in rows), column, columns


def _block(node_id: str, schema: Schema, tables: Mapping[float, Table]) -> Block:
    times = sorted(tables)
    ordered = [tables[at] for at in times]
    rows, narrow_count = len(ordered[0].entities), narrow_of(schema.columns)
    narrow = _stacked([table.f32 for table in ordered], "<f4", narrow_count, rows)
    wide = _stacked(
        [table.f64 for table in ordered], "<f8", len(schema.columns) - narrow_count, rows
    )
    shape = (len(times), len(schema.columns), rows)
    finite = np.concatenate([np.isfinite(narrow), np.isfinite(wide)], axis=1)
    reasons: tuple[Reason, ...] = ()
    why = np.zeros(shape, np.uint8)
    if not finite.all():
        why, reasons = _reasons_of(ordered, finite)
        narrow = np.where(finite[:, :narrow_count], narrow, np.float32(np.nan))
        wide = np.where(finite[:, narrow_count:], wide, np.nan)
    return Block(
        kind=schema.entity_kind,
        columns=schema.columns,
        rows=tuple(Row(node_id, entity) for entity in ordered[0].entities),
        times=np.array(times),
        planes={NARROW: narrow, WIDE: wide},
        why=why,
        reasons=reasons,
    )


def _stacked(parts: Sequence[bytes], dtype: str, columns: int, rows: int) -> AnyArray:
    return np.frombuffer(b"".join(parts), dtype).reshape(len(parts), columns, rows)


def _reasons_of(tables: Sequence[Table], finite: AnyArray) -> tuple[U8, tuple[Reason, ...]]:
    index = {_UNREAD: 1}
    why = np.zeros(finite.shape, np.uint8)
    for place, table in enumerate(tables):
        if place and table.missing == tables[place - 1].missing:
            why[place] = why[place - 1]  # what a device lacks is told again in each table
            continue
        for cell in table.missing:
            if 0 <= cell.column < finite.shape[1] and 0 <= cell.row < finite.shape[2]:
                code = index.setdefault(Reason(cell.kind, cell.reason), len(index) + 1)
                why[place, cell.column, cell.row] = min(code, MOST_REASONS)
    why = np.where(finite, 0, np.maximum(why, 1)).astype(np.uint8)
    return why, tuple(index)[:MOST_REASONS]
