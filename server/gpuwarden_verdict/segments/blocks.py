"""A block: series of some entities of one kind over some times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind, Storage
from gpuwarden_wire.schema import Column

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]
AnyArray = npt.NDArray[Any]

NARROW = "narrow"
WIDE = "wide"
RAW_PLANES = (NARROW, WIDE)
ROLLUP_PLANES = ("min", "max", "sum", "last", "counter", "increase", "count")
PLANES: Mapping[str, tuple[type[Any], str]] = {
    NARROW: (np.float32, NARROW),
    WIDE: (np.float64, WIDE),
    "min": (np.float32, NARROW),
    "max": (np.float32, NARROW),
    "sum": (np.float32, NARROW),
    "last": (np.float32, NARROW),
    "counter": (np.float64, WIDE),
    "increase": (np.float64, WIDE),
    "count": (np.float32, "all"),
}
"""dtype of each plane, and which columns it has: the f32 ones, the counters, or all."""

MOST_REASONS = 255


class Reason(NamedTuple):
    """Why there is no number.

    Attributes:
        kind: Not supported, unavailable or stale.
        words: The agent's short phrase, "" where it gave none.
    """

    kind: MissingKind
    words: str


class Row(NamedTuple):
    """An entity as its node names it: "" the node itself, a GPU's uuid, a device's name."""

    node_id: str
    entity: str


@dataclass(frozen=True, slots=True)
class Block:
    """Series of entities of one kind at some times: readings, or roll-ups of them.

    Attributes:
        kind: Kind of the entities.
        columns: Metrics, f32 ones first.
        rows: Entities; those of a node follow each other.
        times: Epoch seconds, float64, rising: of the readings, or where each roll-up begins.
        planes: Shape (times, columns, rows). Of readings: `narrow` (the f32 columns) and `wide`
            (the counters). Of roll-ups: `min`, `max`, `sum`, `last` of the f32 columns; of the
            counters `counter` (the last number) and `increase` (resets guarded); `count` of all.
        why: 0 where there is a number, else the place in `reasons` from 1 on; uint8, shape (times,
            columns, rows). Planes are NaN there, `count` is 0.
        reasons: What `why` names.
    """

    kind: EntityKind
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    times: F64
    planes: Mapping[str, AnyArray]
    why: U8
    reasons: tuple[Reason, ...] = ()

    @property
    def narrow(self) -> int:
        """Number of f32 columns."""
        return narrow_of(self.columns)

    @property
    def is_rollup(self) -> bool:
        """Whether it holds roll-ups."""
        return "count" in self.planes

    def of_node(self, node_id: str) -> Block | None:
        """The rows of one node; None where it has none."""
        places = [place for place, row in enumerate(self.rows) if row.node_id == node_id]
        return self.at_rows(slice(places[0], places[-1] + 1)) if places else None

    def by_node(self) -> Iterator[Block]:
        """One block a node."""
        return map(self.at_rows, self.rows_by_node())

    def rows_by_node(self) -> Iterator[slice]:
        """The rows of each node."""
        begin = 0
        for end in range(1, len(self.rows) + 1):
            if end == len(self.rows) or self.rows[end].node_id != self.rows[begin].node_id:
                yield slice(begin, end)
                begin = end

    def at_rows(self, rows: slice) -> Block:
        """Some of the rows."""
        return replace(
            self,
            rows=self.rows[rows],
            planes={name: plane[:, :, rows] for name, plane in self.planes.items()},
            why=self.why[:, :, rows],
        )

    def between(self, begin: float, end: float) -> Block | None:
        """The times from `begin` on and before `end`; None where there are none."""
        first, last = np.searchsorted(self.times, [begin, end])
        if first == last:
            return None
        times = slice(int(first), int(last))
        return replace(
            self,
            times=self.times[times],
            planes={name: plane[times] for name, plane in self.planes.items()},
            why=self.why[times],
        )


Layout = tuple[EntityKind, tuple[Column, ...], tuple[Row, ...], bool]


def narrow_of(columns: Sequence[Column]) -> int:
    """Number of f32 columns; they precede the counters."""
    return bisect_left(columns, True, key=lambda column: column.storage is Storage.COUNTER)


def columns_of(plane: str, columns: int, narrow: int) -> slice:
    """The columns that a plane has."""
    match PLANES[plane][1]:
        case "narrow":
            return slice(0, narrow)
        case "wide":
            return slice(narrow, columns)
        case _:
            return slice(0, columns)


def layout_of(block: Block) -> Layout:
    """What blocks must share to become one."""
    return block.kind, block.columns, block.rows, block.is_rollup


def merged(blocks: Iterable[Block]) -> list[Block]:
    """One block a layout, times in order.

    Where a time comes twice, a cell with more readings wins, and among equals the later block's:
    what was written in part before a crash is written in full after it.
    """
    groups: dict[Layout, list[Block]] = {}
    for block in blocks:
        groups.setdefault(layout_of(block), []).append(block)
    return [_merge(group) if len(group) > 1 else group[0] for group in groups.values()]


def with_reasons(blocks: Sequence[Block]) -> tuple[list[U8], tuple[Reason, ...]]:
    """The blocks' `why` in terms of one list of reasons; beyond MOST_REASONS, the last of them."""
    index: dict[Reason, int] = {}
    recoded = []
    for block in blocks:
        codes = np.zeros(MOST_REASONS + 1, np.uint8)
        for place, reason in enumerate(block.reasons, start=1):
            codes[place] = min(index.setdefault(reason, len(index) + 1), MOST_REASONS)
        recoded.append(codes[block.why] if block.reasons else block.why)
    return recoded, tuple(index)[:MOST_REASONS]


def side_by_side(blocks: Sequence[Block]) -> Block:
    """Blocks of the same columns and as many times as one block; its times are the first one's."""
    if len(blocks) == 1:
        return blocks[0]
    whys, reasons = with_reasons(blocks)
    return replace(
        blocks[0],
        rows=tuple(row for block in blocks for row in block.rows),
        planes={
            name: np.concatenate([block.planes[name] for block in blocks], axis=2)
            for name in blocks[0].planes
        },
        why=np.concatenate(whys, axis=2),
        reasons=reasons,
    )


def _merge(blocks: list[Block]) -> Block:
    whys, reasons = with_reasons(blocks)
    times = np.concatenate([block.times for block in blocks])
    order = np.argsort(times, kind="stable")
    planes = {
        name: np.concatenate([block.planes[name] for block in blocks])[order]
        for name in blocks[0].planes
    }
    why, times = np.concatenate(whys)[order], times[order]
    again = np.flatnonzero(np.diff(times) == 0.0) + 1
    for place in again.tolist():  # the later one is at `place`: give it what is better before it
        _keep_fuller(planes, why, place, narrow_of(blocks[0].columns))
    keep = np.ones(times.size, np.bool_)
    keep[again - 1] = False
    return Block(
        kind=blocks[0].kind,
        columns=blocks[0].columns,
        rows=blocks[0].rows,
        times=times[keep],
        planes={name: plane[keep] for name, plane in planes.items()},
        why=why[keep],
        reasons=reasons,
    )


def _keep_fuller(planes: Mapping[str, AnyArray], why: U8, place: int, narrow: int) -> None:
    before, after = place - 1, place
    if "count" in planes:
        better = planes["count"][before] > planes["count"][after]
    else:
        better = (why[before] == 0) & (why[after] != 0)
    for name, plane in planes.items():
        there = better[columns_of(name, better.shape[0], narrow)]
        np.copyto(plane[after], plane[before], where=there)
    np.copyto(why[after], why[before], where=better)
