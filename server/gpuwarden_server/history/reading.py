"""What charts read: segments, slabs and what is still open, as series on one grid of times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from gpuwarden_server.history import repository
from gpuwarden_server.history.buffer import OpenMinutes
from gpuwarden_server.history.compaction import Compactor
from gpuwarden_server.history.domain import SHAPES, Level, pack_of
from gpuwarden_server.history.lookback import Lookback
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.sealing import Sealer, readings_of
from gpuwarden_server.ingest.names import FormerNames
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.segments.blocks import (
    F64,
    NARROW,
    WIDE,
    AnyArray,
    Block,
    Reason,
    Row,
    columns_of,
    merged,
)
from gpuwarden_verdict.segments.rollup import roll_up_further
from gpuwarden_wire.metrics import EntityKind, Storage
from gpuwarden_wire.schema import Column

Key = tuple[str, str, Column]
"""Home, entity as its node names it, and metric. A GPU's name is its own, and it may move: it has
no home. Names of all else mean something within their node only."""
_ANYWHERE = Row("", "")
_ASIDE_S = 1e-3


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for.

    Attributes:
        kind: Kind of the entities.
        places: (node, entity as the node names it); an entity of None is all that the node has.
        metrics: Names.
        begin: Epoch seconds.
        end: Epoch seconds, after `begin`.
        level: How fine.
        step_s: Distance of the grid's times, a multiple of the level's; without meaning for
            readings.
    """

    kind: EntityKind
    places: tuple[tuple[str, str | None], ...]
    metrics: tuple[str, ...]
    begin: float
    end: float
    level: Level
    step_s: int


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one entity on the grid; arrays of the grid's length, NaN where missing.

    Attributes:
        node_id: Node that it sits in, the latest of several.
        entity: As its node names it.
        metric: Name, storage, kind and unit.
        numbers: By name: `value` of readings; `min`, `mean`, `max`, `last` of gauges and states;
            `last`, `increase` of counters.
        gaps: (first place, last place, reason) where numbers are missing; a reason of None: nothing
            was received.
    """

    node_id: str
    entity: str
    metric: Column
    numbers: dict[str, F64]
    gaps: tuple[tuple[int, int, Reason | None], ...]


class HistoryReader:
    """Answers from memory and history.db; any thread."""

    def __init__(
        self,
        history: Database,
        buffer: OpenMinutes,
        sealer: Sealer,
        lookback: Lookback,
        names: FormerNames,
        meters: HistoryMeters,
    ) -> None:
        self._history = history
        self._names = names
        self._buffer = buffer
        self._sealer = sealer
        self._lookback = lookback
        self._meters = meters
        self._compactor = Compactor(history, meters)

    def read(self, wanted: Wanted) -> tuple[F64, list[Series]]:
        """The grid, and one series for each wanted metric and entity that has any.

        The open minute is included. A GPU that was in several of the nodes is one series.
        """
        with self._meters.seconds.labels("read").time():
            pieces: dict[Key, list[Block]] = {}
            places = frozenset(wanted.places)
            for node_id in dict.fromkeys(node_id for node_id, _ in wanted.places):
                for block in self._under_all_names(wanted, node_id):
                    _take_apart(block, wanted, places, pieces)
            whole = {key: _joined(parts) for key, parts in pieces.items()}
            grid = _grid(wanted, whole.values())
            series = [
                _series(block, pieces[key][-1].rows[0], wanted, grid)
                for key, block in whole.items()
            ]
        order = {name: place for place, name in enumerate(wanted.metrics)}
        return grid, sorted(
            series, key=lambda one: (one.entity, one.node_id, order[one.metric.name])
        )

    def _under_all_names(self, wanted: Wanted, node_id: str) -> list[Block]:
        """A node's blocks, by whichever name it was written when it had that name."""
        former = self._names.of(node_id)
        if not former:
            return _outside(self._blocks(wanted, node_id), self._names.lent(node_id, node_id))
        blocks: list[Block] = []
        for place, name in enumerate(dict.fromkeys([*(one.name for one in former), node_id])):
            own = _outside(self._blocks(wanted, name), self._names.lent(name, node_id))
            # A quarter in which the name changed is in two parts, which are put together later.
            aside_s = place * _ASIDE_S if wanted.level is Level.QUARTER else 0.0
            blocks += [_placed(block, node_id, aside_s) for block in own]
        return blocks

    def _blocks(self, wanted: Wanted, node_id: str) -> list[Block]:
        """A node's blocks of the level, those of the database first."""
        level, shape, pack = wanted.level, SHAPES[wanted.level], pack_of(node_id)
        # memory first: what moves to the database meanwhile is then found in both, never in none
        live = self._live(node_id, level)
        begin = shape.window_of(wanted.begin)
        with self._history.read() as connection:
            bodies = repository.segments_between(connection, level, node_id, begin, wanted.end)
            slabs = repository.slabs_between(connection, level, pack, begin, wanted.end)
            minutes = (
                repository.slabs_between(connection, Level.MINUTE, pack, begin, wanted.end)
                if level is Level.QUARTER
                else []
            )
        blocks = self._of(node_id, wanted.kind, bodies + [body for _, body in slabs])
        live = [block for block in live if block.kind is wanted.kind]
        if level is not Level.QUARTER:
            return blocks + live
        # minutes in slabs are in no quarter yet
        young = self._of(node_id, wanted.kind, [body for _, body in minutes])
        return blocks + [roll_up_further(one, shape.step_s) for one in merged(young + live)]

    def _live(self, node_id: str, level: Level) -> list[Block]:
        """What is in memory: readings, or their roll-ups by the minute."""
        noted = readings_of(node_id, self._buffer.of_node(node_id))
        if level is not Level.RAW:
            return self._sealer.by_minute(noted)
        held = (
            block.of_node(node_id)
            for _, body in self._lookback.of_pack(pack_of(node_id))
            for block in self._compactor.decoded(body)
        )
        return [block for block in held if block is not None] + noted

    def _of(self, node_id: str, kind: EntityKind, bodies: Iterable[bytes]) -> list[Block]:
        return [
            own
            for body in bodies
            for block in self._compactor.decoded(body)
            if block.kind is kind and (own := block.of_node(node_id)) is not None
        ]


def _outside(blocks: list[Block], times: Sequence[tuple[float, float]]) -> list[Block]:
    """What lies outside some spans of time, which are in order."""
    for begin, end in times:
        parts = [(block.between(-inf, begin), block.between(end, inf)) for block in blocks]
        blocks = [part for both in parts for part in both if part is not None]
    return blocks


def _placed(block: Block, node_id: str, aside_s: float) -> Block:
    """The block as one of a node of this name, its times moved by less than any step."""
    rows = tuple(row._replace(node_id=node_id) for row in block.rows)
    return replace(block, rows=rows, times=block.times + aside_s)


def _take_apart(
    block: Block,
    wanted: Wanted,
    places: frozenset[tuple[str, str | None]],
    pieces: dict[Key, list[Block]],
) -> None:
    """Add what is wanted of a block to `pieces`, one block for each entity and metric."""
    inside = block.between(_first_time(wanted), wanted.end)
    if inside is None:
        return
    columns = [
        (place, column)
        for place, column in enumerate(block.columns)
        if column.name in wanted.metrics
    ]
    for row, own in enumerate(block.rows):
        if (own.node_id, None) in places or tuple(own) in places:
            home = "" if block.kind is EntityKind.GPU else own.node_id
            for place, column in columns:
                pieces.setdefault((home, own.entity, column), []).append(_cell(inside, place, row))


def _cell(block: Block, place: int, row: int) -> Block:
    """One metric of one entity."""
    planes = {}
    for name, plane in block.planes.items():
        own = columns_of(name, len(block.columns), block.narrow)
        first = place - own.start if own.start <= place < own.stop else plane.shape[1]
        planes[name] = plane[:, first : first + 1, row : row + 1]
    return replace(
        block,
        columns=(block.columns[place],),
        rows=(block.rows[row],),
        planes=planes,
        why=block.why[:, place : place + 1, row : row + 1],
    )


def _joined(parts: Sequence[Block]) -> Block:
    """Parts of one series as one, in whichever nodes its entity was."""
    return merged([replace(part, rows=(_ANYWHERE,)) for part in parts])[0]


def _first_time(wanted: Wanted) -> float:
    if wanted.level is Level.RAW:
        return wanted.begin
    return wanted.begin // wanted.step_s * wanted.step_s


def _grid(wanted: Wanted, blocks: Iterable[Block]) -> F64:
    """Times of the answer: where steps begin; of readings, when anything was read."""
    if wanted.level is Level.RAW:
        return np.unique(np.concatenate([np.empty(0), *(block.times for block in blocks)]))
    return np.arange(_first_time(wanted), wanted.end, wanted.step_s, dtype=np.float64)


def _series(block: Block, row: Row, wanted: Wanted, grid: F64) -> Series:
    if wanted.level is not Level.RAW:
        block = roll_up_further(block, wanted.step_s)
    places = np.searchsorted(grid, block.times)
    codes = np.full(grid.size, -1)
    codes[places] = block.why[:, 0, 0]
    numbers = {}
    for name, values in _numbers_of(block).items():
        numbers[name] = np.full(grid.size, np.nan)
        numbers[name][places] = values[:, 0, 0]
    return Series(
        row.node_id, row.entity, block.columns[0], numbers, tuple(_gaps(codes, block.reasons))
    )


def _numbers_of(block: Block) -> dict[str, AnyArray]:
    planes = block.planes
    is_counter = block.columns[0].storage is Storage.COUNTER
    if not block.is_rollup:
        return {"value": planes[WIDE if is_counter else NARROW]}
    if is_counter:
        return {"last": planes["counter"], "increase": planes["increase"]}
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = planes["sum"] / planes["count"]
    return {"min": planes["min"], "mean": mean, "max": planes["max"], "last": planes["last"]}


def _gaps(codes: AnyArray, reasons: Sequence[Reason]) -> Iterator[tuple[int, int, Reason | None]]:
    """Runs of one reason, by their first and last place."""
    begins = np.flatnonzero(np.diff(codes, prepend=-2))
    ends = np.append(begins[1:], codes.size) - 1
    for first, last in zip(begins.tolist(), ends.tolist(), strict=True):
        code = int(codes[first])
        if code != 0:
            yield first, last, reasons[code - 1] if code > 0 else None
