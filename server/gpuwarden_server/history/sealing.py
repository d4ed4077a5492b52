"""From the tables of a minute to readings and roll-ups, all nodes of a pack together."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

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
from gpuwarden_verdict.windows import JoinedTables, TableLayout
from gpuwarden_wire.batches import MissingKind, Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Column, Schema

_UNREAD = Reason(MissingKind.UNAVAILABLE, "")

_Node = tuple[str, Sequence[JoinedTables]]
RowsOf = Callable[[str, TableLayout], tuple[tuple[Row, ...], ...]]
LastKey = tuple[EntityKind, tuple[Row, ...], str, int]
Last = tuple[float, tuple[Column, ...], F64]
"""When, which columns, and where the counters stood."""


def readings_of(
    node_id: str, batches: Sequence[JoinedTables], rows_of: RowsOf | None = None
) -> list[Block]:
    """A node's batches as blocks, one for each set of columns and entities, times in order.

    Of tables of one moment the later holds. Infinities are no numbers.

    Args:
        node_id: The node.
        batches: Its batches.
        rows_of: Names of the rows in its tables, where somebody keeps them.
    """
    regular = _regular_blocks(node_id, batches, rows_of or _rows_of)
    if regular is not None:
        return regular
    groups: dict[tuple[str, tuple[str, ...]], tuple[Schema, dict[float, Table]]] = {}
    for batch in batches:
        for schema, table in zip(batch.layout.schemas, batch.tables(), strict=True):
            if table.entities and schema.columns:
                group = groups.setdefault((table.schema, table.entities), (schema, {}))
                group[1][table.observed_at] = table
    return [_block(node_id, schema, tables) for schema, tables in groups.values()]


def _regular_blocks(
    node_id: str, batches: Sequence[JoinedTables], rows_of: RowsOf
) -> list[Block] | None:
    """As `readings_of`, where all batches are alike, in order, and miss nothing; None elsewhere."""
    if not _is_regular(batches):
        return None
    gathered = _gathered([(node_id, batches)], rows_of)
    return None if gathered is None else [one.block for one in gathered]


class RowBook:
    """Names of the rows in a node's tables, made once and not each minute.

    A full fleet has a quarter of a million of them, which the garbage collector would look at again
    after each minute, with all threads waiting.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[TableLayout, tuple[tuple[Row, ...], ...]]] = {}

    def of(self, node_id: str, layout: TableLayout) -> tuple[tuple[Row, ...], ...]:
        """The rows of each table of a layout."""
        known = self._known.get(node_id)
        if known is None or known[0] is not layout:
            known = self._known[node_id] = layout, _rows_of(node_id, layout)
        return known[1]

    def forget(self, node_id: str) -> None:
        """No node has this name any more."""
        self._known.pop(node_id, None)


def _rows_of(node_id: str, layout: TableLayout) -> tuple[tuple[Row, ...], ...]:
    return tuple(tuple(Row(node_id, one) for one in own) for own in layout.entities)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Readings of some nodes that read alike.

    Attributes:
        block: All of them; its times are the first node's.
        parts: The rows of each node's table, and when its first reading was.
    """

    block: Block
    parts: Sequence[tuple[slice, float]]


def gather(
    nodes: Iterable[tuple[str, Sequence[JoinedTables]]], rows_of: RowsOf | None = None
) -> list[Gathered]:
    """The batches of a minute, all nodes that read alike in one piece each.

    Args:
        nodes: The batches of each.
        rows_of: Names of the rows in a node's tables, where somebody keeps them.
    """
    rows_of = rows_of or _rows_of
    alike: dict[tuple[object, int], list[_Node]] = {}
    rest: list[_Node] = []
    for node in nodes:
        if _is_regular(node[1]):
            alike.setdefault((node[1][0].layout.alike, len(node[1])), []).append(node)
        else:
            rest.append(node)
    found: list[Gathered] = []
    for group in alike.values():
        gathered = _gathered(group, rows_of)
        if gathered is None:  # a number is missing somewhere, or a time
            rest += group
        else:
            found += gathered
    apart = (block for node_id, own in rest for block in readings_of(node_id, own, rows_of))
    return found + _side_by_side(apart)


def _side_by_side(readings: Iterable[Block]) -> list[Gathered]:
    groups: dict[tuple[EntityKind, int, int], list[Block]] = {}
    for block in readings:
        # a schema's columns are one object for all nodes, and hashing them takes longer
        groups.setdefault((block.kind, id(block.columns), block.times.size), []).append(block)
    return [_joined(blocks) for blocks in groups.values()]


def _joined(blocks: Sequence[Block]) -> Gathered:
    parts, begin = [], 0
    for block in blocks:
        end = begin + len(block.rows)
        parts.append((slice(begin, end), float(block.times[0])))
        begin = end
    return Gathered(side_by_side(blocks), parts)


def _is_regular(batches: Sequence[JoinedTables]) -> bool:
    """Whether all batches are alike, and miss nothing that the agent told of."""
    return bool(batches) and not any(
        one.layout is not batches[0].layout or one.missing for one in batches
    )


def _gathered(nodes: Sequence[_Node], rows_of: RowsOf) -> list[Gathered] | None:
    """Nodes of as many regular batches in layouts that are alike.

    None where a cell lacks its number, or times are not in order.
    """
    layout, count = nodes[0][1][0].layout, len(nodes[0][1])
    times = np.array([[one.times for one in batches] for _, batches in nodes])
    narrow = np.frombuffer(b"".join([one.f32 for _, own in nodes for one in own]), "<f4")
    wide = np.frombuffer(b"".join([one.f64 for _, own in nodes for one in own]), "<f8")
    rising = len(set(layout.hashes)) == len(layout.hashes) and bool(
        (np.diff(times, axis=1) > 0).all()
    )
    if not (rising and np.isfinite(narrow).all() and np.isfinite(wide).all()):
        return None
    named = [rows_of(node_id, own[0].layout) for node_id, own in nodes]
    narrow = narrow.reshape(len(nodes), count, layout.narrow[-1])
    wide = wide.reshape(len(nodes), count, layout.wide[-1])
    return [
        Gathered(
            Block(
                kind=schema.entity_kind,
                columns=schema.columns,
                rows=tuple([row for tables in named for row in tables[number]]),
                times=times[0, :, number],
                planes={
                    NARROW: _of_table(narrow, layout.narrow, number, rows),
                    WIDE: _of_table(wide, layout.wide, number, rows),
                },
                why=np.zeros((count, len(schema.columns), len(nodes) * rows), np.uint8),
            ),
            [
                (slice(place * rows, (place + 1) * rows), first)
                for place, first in enumerate(times[:, 0, number].tolist())
            ],
        )
        for number, schema in enumerate(layout.schemas)
        if (rows := len(layout.entities[number])) and schema.columns
    ]


def _of_table(numbers: AnyArray, places: Sequence[int], number: int, rows: int) -> AnyArray:
    """A table's numbers of all nodes and batches, shape (batches, columns, nodes x rows)."""
    nodes, batches = numbers.shape[:2]
    begin, end = places[number], places[number + 1]
    own = numbers[:, :, begin:end].reshape(nodes, batches, (end - begin) // rows, rows)
    return own.transpose(1, 2, 0, 3).reshape(batches, -1, nodes * rows)


class Sealer:
    """Makes roll-ups; remembers where each counter stood, so that minutes join without a gap.

    Attributes:
        rows: Names of rows, the same for all forks.
    """

    def __init__(self) -> None:
        self.rows = RowBook()
        self._news: dict[LastKey, Last] = {}
        self._last: MutableMapping[LastKey, Last] = self._news
        self._renamed: dict[str, str] = {}

    def fork(self) -> Sealer:
        """One that begins with what this one remembers and keeps its own news to itself."""
        self._renamed.clear()
        return self._child()

    def _child(self) -> Sealer:
        forked = Sealer()
        forked.rows = self.rows
        forked._last = ChainMap(forked._news, self._last)
        return forked

    def adopt(self, fork: Sealer) -> None:
        """Remember what a fork came to know: what it made is in the database."""
        for key, last in fork._news.items():
            renamed = self._renamed.get(key[1][0].node_id)
            self._last[key if renamed is None else _named(key, renamed)] = last

    def rename(self, old: str, new: str) -> None:
        """A node is called `new` from now on; a fork that is at work meanwhile need not know."""
        self._renamed[old] = new
        self.rows.forget(old)
        for key in [key for key in list(self._last) if key[1][0].node_id == old]:
            self._last[_named(key, new)] = self._last.pop(key)

    def remember(self, rollups: Iterable[Block]) -> None:
        """Note where counters stood in these roll-ups, each of one step."""
        for block in rollups:
            at, counter = float(block.times[-1]), block.planes["counter"][-1]
            for rows in block.rows_by_node():
                key = _key_of(block, rows)
                known = self._last.get(key)
                if known is None or known[0] <= at:
                    self._last[key] = (at, block.columns, counter[:, rows])

    def roll_up(self, readings: Iterable[Gathered]) -> list[Block]:
        """Roll-ups of readings of any nodes, one block for all nodes that read alike.

        Args:
            readings: Of one minute.
        """
        return [roll_up_readings(one.block, MINUTE_S, self._before(one)) for one in readings]

    def by_minute(self, readings: Iterable[Block]) -> list[Block]:
        """Roll-ups of one node's readings of any minutes; nothing is remembered beyond the call.

        Each minute counts on from the one before it, whether that is sealed or not.
        """
        rolled: list[Block] = []
        child = self._child()
        for block in readings:
            minutes = np.unique(block.times // MINUTE_S)
            for minute in minutes.tolist():
                part = block.between(minute * MINUTE_S, (minute + 1) * MINUTE_S)
                if part is not None:
                    made = child.roll_up(_side_by_side([part]))
                    child.remember(made)
                    rolled += made
        return rolled

    def _before(self, readings: Gathered) -> F64:
        """Where the counters stood before; NaN where that is not known, or is not before."""
        block = readings.block
        before = np.full(block.planes[WIDE].shape[1:], np.nan)
        for rows, first in readings.parts:
            known = self._last.get(_key_of(block, rows))
            if known is not None and known[0] < first and known[1] == block.columns:
                before[:, rows] = known[2]
        return before


def _key_of(block: Block, rows: slice) -> LastKey:
    """Names a node's table, short of its columns: who looks up compares those."""
    return block.kind, block.rows[rows], block.columns[0].name, len(block.columns)


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
