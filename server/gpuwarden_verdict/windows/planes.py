"""Planes: one number a kept quantity, series and entity, in columns that grow as they must.

Entities are rows and metrics are columns of one block, so that what one node sends lies together:
a batch touches a few runs of memory, however large the fleet is. Metrics that travel as float32
and counters have a section each, since they need other planes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows.lanes import LaneBook, SectionColumns
from gpuwarden_wire.metrics import Storage
from gpuwarden_wire.schema import Schema

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]
Array = TypeVar("Array", bound=npt.NDArray[Any])

FAST_S = 60.0
"""Time constant of the fast mean: a dozen readings at the usual 5 s."""
SLOW_S = 3600.0
"""Time constant of the slow mean and of the variance around it."""
HOUR_S = 3600.0
DAY_S = 86400.0

NUMBER, NOT_SUPPORTED, UNAVAILABLE, STALE, NEVER = range(5)

_MEANS = (
    "fast",
    "slow",
    "variance",
    "coverage",
    "steady",  # seconds from the last change of the number to the latest number
    "highest",  # since first sight
)
PLANES = MappingProxyType(
    {
        Storage.F32: (*_MEANS, "number"),  # the latest number
        Storage.COUNTER: (*_MEANS, "increment_1h", "increment_24h"),
    }
)
"""float32 planes of a section's block, NaN before the first number."""

SIDES: Mapping[str, tuple[Any, float]] = MappingProxyType(
    {
        "total": (np.float64, np.nan),  # latest number of a counter: float32 loses counts
        "missing": (np.uint8, NEVER),  # why the latest reading is no number
        # seconds from the latest number to the latest reading: 0 where that is a number
        "behind": (np.float32, np.nan),
        "resets": (np.float32, 0.0),  # times a counter went back
    }
)
"""dtype and initial value of what stands beside the block; `total`, `resets` of counters only."""
_OF_COUNTERS = frozenset({"total", "resets"})

EVENT_PLANES = MappingProxyType(
    {
        "events_1h": (np.float32, 0.0),
        "events_24h": (np.float32, 0.0),
        "event_at": (np.float64, np.nan),
    }
)

_FIRST_CAPACITY = 16
_SMALL, _LEAP = 1_024, 16
"""From so many rows on arrays grow to sixteen times: room that is not used is not resident, and to
copy what a full fleet has would hold its batches up for half a second."""
_MOST_INITIALISED = 1_024
_MOST_PLANS = 256
_SPARE_COLUMNS = 8
"""A new metric takes room for an eighth more, and at least for so many."""


class Section:
    """The series of one kind of entity that travel in one way. Bytes a series: 33, counters 49.

    Attributes:
        planes: Names of the block's planes, in order.
        place: Where each plane lies.
        slots: Column by metric name.
        block: float32, shape (capacity, planes, columns).
        sides: The arrays of SIDES, shape (capacity, columns).
        lanes: Which columns are always read together.
        lane_at: Time of each lane's latest reading, epoch seconds, shape (capacity, lanes).
    """

    def __init__(self, storage: Storage) -> None:
        """Make an empty one."""
        self.storage = storage
        self.planes = PLANES[storage]
        self.place = {name: number for number, name in enumerate(self.planes)}
        self.slots: dict[str, int] = {}
        self.lanes = LaneBook()
        self.block: F32 = np.empty((0, len(self.planes), 0), np.float32)
        self.sides: dict[str, AnyArray] = {
            name: np.empty((0, 0), dtype)
            for name, (dtype, _) in SIDES.items()
            if storage is Storage.COUNTER or name not in _OF_COUNTERS
        }
        self.lane_at: F64 = np.empty((0, 0), np.float64)

    @property
    def size(self) -> int:
        """Bytes of a row."""
        sides = sum(side.shape[1] * side.itemsize for side in self.sides.values())
        block = self.block.shape[1] * self.block.shape[2] * self.block.itemsize
        return int(sides + block + self.lane_at.shape[1] * self.lane_at.itemsize)

    def slots_of(self, names: list[str], ready: int) -> I64:
        """Columns of metrics, made where they are new; rows below `ready` are in use."""
        for name in names:
            self.slots.setdefault(name, len(self.slots))
        width = self.block.shape[2]
        if len(self.slots) > width:
            spare = max(_SPARE_COLUMNS, len(self.slots) // 8)
            room = len(self.slots) + (spare if width else 0)
            self._reshape(self.block.shape[0], room, ready)
            self.clear(slice(0, ready), slice(width, room))
        return np.array([self.slots[name] for name in names], np.int64)

    def plan(self, slots: I64, ready: int) -> SectionColumns:
        """How a table with these columns is read and written."""
        before = self.lane_at.shape[1]
        copies = self.lanes.cover(slots.tolist())
        if self.lanes.count > before:
            grown = np.empty((self.block.shape[0], self.lanes.count))
            grown[:ready, :before] = self.lane_at[:ready]
            for lane in range(before, self.lanes.count):
                source = copies.get(lane)
                grown[:ready, lane] = -np.inf if source is None else grown[:ready, source]
            self.lane_at = grown
        return self.lanes.columns(slots)

    def widen(self, capacity: int, ready: int) -> None:
        """Make room for so many rows."""
        self._reshape(capacity, self.block.shape[2], ready)
        lanes = np.empty((capacity, self.lane_at.shape[1]))
        lanes[:ready] = self.lane_at[:ready]
        self.lane_at = lanes

    def clear(self, rows: slice | I64, columns: slice | None = None) -> None:
        """Set series to their initial values; all columns, and the lanes, where none are named."""
        chosen = slice(None) if columns is None else columns
        self.block[rows, :, chosen] = np.nan
        for name, side in self.sides.items():
            side[rows, chosen] = SIDES[name][1]
        if columns is None:
            self.lane_at[rows] = -np.inf

    def move(self, keep: I64) -> None:
        """Close the rows up to those kept, which rise; the rest is to be cleared."""
        self.block = _closed_up(self.block, keep)
        self.lane_at = _closed_up(self.lane_at, keep)
        self.sides = {name: _closed_up(side, keep) for name, side in self.sides.items()}

    def picked(self, rows: I64 | None) -> Section:
        """Some rows as they are now; with None all, as windows onto what is there."""
        other = copy(self)
        other.slots, other.lanes = dict(self.slots), self.lanes.copy()
        other.sides = dict(self.sides)
        if rows is not None:
            other.block, other.lane_at = self.block[rows], self.lane_at[rows]
            other.sides = {name: side[rows] for name, side in self.sides.items()}
        return other

    def _reshape(self, capacity: int, width: int, ready: int) -> None:
        # Memory that was never written is not resident: nothing is filled before it is used.
        old = self.block
        self.block = np.empty((capacity, len(self.planes), width), np.float32)
        self.block[:ready, :, : old.shape[2]] = old[:ready]
        for name, side in self.sides.items():
            grown = np.empty((capacity, width), side.dtype)
            grown[:ready, : side.shape[1]] = side[:ready]
            self.sides[name] = grown


class SchemaPlan:
    """Where a schema's columns lie: its float32 columns, and its counters.

    Attributes:
        narrow: Of the float32 section, None where the schema has none.
        wide: Of the counters' section, None where the schema has none.
        lane_counts: Lanes of both sections when it was made; other numbers make it outdated.
    """

    __slots__ = ("lane_counts", "narrow", "wide")

    def __init__(
        self,
        narrow: SectionColumns | None,
        wide: SectionColumns | None,
        lane_counts: tuple[int, int],
    ) -> None:
        self.narrow = narrow
        self.wide = wide
        self.lane_counts = lane_counts


class KindPlanes:
    """All that is kept of one kind of entity, growing by leaps.

    Attributes:
        refs: Entities in row order.
        index: Row by entity key.
        narrow: Series that travel as float32.
        wide: Counters.
        groups: Row in the event planes by group.
        by_group: The planes of EVENT_PLANES, shape (groups, capacity).
        last_seen_at: Time of each entity's latest reading, epoch seconds, shape (capacity,).
        node_rows: Row of each entity's node among the nodes, shape (capacity,).
        changes: Raised by whatever changes a number.
    """

    def __init__(self) -> None:
        self.refs: list[EntityRef] = []
        self.index: dict[str, int] = {}
        self.narrow = Section(Storage.F32)
        self.wide = Section(Storage.COUNTER)
        self.groups: dict[EventGroup, int] = {}
        self.by_group: dict[str, AnyArray] = {
            name: np.empty((0, 0), dtype) for name, (dtype, _) in EVENT_PLANES.items()
        }
        self.last_seen_at: F64 = np.empty(0)
        self.node_rows: I64 = np.empty(0, np.int64)
        self.changes = 0
        # by identity, each with its schema, whose identity is not given away while it is kept
        self._plans: dict[int, tuple[Schema, SchemaPlan]] = {}
        self._marks = np.empty(0, np.int32)
        self._ready = 0
        self._widen(_FIRST_CAPACITY)

    @property
    def capacity(self) -> int:
        """Rows that the arrays have room for."""
        return int(self.node_rows.shape[0])

    @property
    def size(self) -> int:
        """Bytes of all series; rows that were never used take none."""
        return self._ready * (self.narrow.size + self.wide.size)

    @property
    def metrics(self) -> list[str]:
        """All metrics ever sent."""
        return list({**self.narrow.slots, **self.wide.slots})

    def section_of(self, storage: Storage) -> Section:
        """The section of series that travel so."""
        return self.wide if storage is Storage.COUNTER else self.narrow

    def add(self, ref: EntityRef) -> int:
        """A new row for `ref`, all at initial values."""
        row = len(self.refs)
        if row == self.capacity:
            self._widen((2 if row < _SMALL else _LEAP) * row)
        if row >= self._ready:
            self._initialise(min(row + _MOST_INITIALISED, self.capacity))
        self.refs.append(ref)
        self.index[ref.key] = row
        self.changes += 1
        return row

    def names_twice(self, rows: I64) -> bool:
        """Whether a row comes more than once; none is -1."""
        if self._marks.size < self.capacity:
            self._marks = np.empty(self.capacity, np.int32)
        places = np.arange(rows.size, dtype=np.int32)
        self._marks[rows] = places  # of a row that comes twice, one of its places is lost
        return bool((self._marks[rows] != places).any())

    def each_row_once(self, rows: I64, parts: int) -> Sequence[Bool | None]:
        """How to fold rows so that none comes twice at once: all (None), or part by part.

        Args:
            rows: None is -1.
            parts: So many parts of equal length, in none of which a row comes twice.
        """
        if parts == 1 or not self.names_twice(rows):
            return [None]
        part_of = np.arange(rows.size) // (rows.size // parts)
        return [part_of == part for part in range(parts)]

    def plan_of(self, schema: Schema) -> SchemaPlan:
        """Where the columns of a schema lie."""
        kept = self._plans.get(id(schema))  # its hash is over all columns: too dear for each batch
        if kept is not None and kept[1].lane_counts == self._lane_counts():
            return kept[1]
        narrow = self._columns(self.narrow, schema)
        wide = self._columns(self.wide, schema)
        plan = SchemaPlan(narrow, wide, self._lane_counts())
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[id(schema)] = schema, plan
        return plan

    def columns_of(self, storage: Storage, names: list[str]) -> SectionColumns:
        """Where some metrics lie in a section, made where they are new."""
        section = self.section_of(storage)
        return section.plan(section.slots_of(names, self._ready), self._ready)

    def group_row(self, group: EventGroup) -> int:
        """Row of an event group in the planes, made on first use."""
        row = self.groups.setdefault(group, len(self.groups))
        if row >= self.by_group["event_at"].shape[0]:
            self.by_group = self._event_planes(max(4, 2 * row), self.capacity)
        return row

    def picked(self, rows: I64 | None = None) -> KindPlanes:
        """Some rows as they are now; with None all rows that there are, for reading.

        Those are windows onto what is there: numbers go on changing, rows neither come nor move.
        """
        other = copy(self)
        other.narrow, other.wide = self.narrow.picked(rows), self.wide.picked(rows)
        other.groups, other.by_group = dict(self.groups), dict(self.by_group)
        if rows is None:
            other.refs = list(self.refs)
        else:
            other.refs = [self.refs[row] for row in rows.tolist()]
            other.by_group = {name: plane[:, rows] for name, plane in self.by_group.items()}
            other.last_seen_at, other.node_rows = self.last_seen_at[rows], self.node_rows[rows]
        return other

    def clear(self, rows: I64) -> None:
        """Set rows to their initial values; they keep their entities."""
        self.narrow.clear(rows)
        self.wide.clear(rows)
        self.last_seen_at[rows] = np.nan
        for name, (_, initial) in EVENT_PLANES.items():
            self.by_group[name][:, rows] = initial

    def drop(self, keys: set[str]) -> None:
        """Remove entities; the rows of the others close up."""
        keep = np.array([n for n, ref in enumerate(self.refs) if ref.key not in keys], np.int64)
        self.narrow.move(keep)
        self.wide.move(keep)
        self.last_seen_at = _closed_up(self.last_seen_at, keep)
        self.node_rows = _closed_up(self.node_rows, keep)
        self.by_group = {name: _closed_up(p.T, keep).T for name, p in self.by_group.items()}
        self.clear(np.arange(keep.size, self._ready))
        self.refs = [self.refs[row] for row in keep.tolist()]
        self.index = {ref.key: row for row, ref in enumerate(self.refs)}
        self.changes += 1

    def _lane_counts(self) -> tuple[int, int]:
        return self.narrow.lanes.count, self.wide.lanes.count

    def _columns(self, section: Section, schema: Schema) -> SectionColumns | None:
        names = [c.name for c in schema.columns if c.storage is section.storage]
        return self.columns_of(section.storage, names) if names else None

    def _initialise(self, until: int) -> None:
        rows = slice(self._ready, until)
        self.narrow.clear(rows)
        self.wide.clear(rows)
        self.last_seen_at[rows] = np.nan
        self.node_rows[rows] = -1
        for name, (_, initial) in EVENT_PLANES.items():
            self.by_group[name][:, rows] = initial
        self._ready = until

    def _widen(self, capacity: int) -> None:
        ready = self._ready
        self.narrow.widen(capacity, ready)
        self.wide.widen(capacity, ready)
        seen, nodes = np.empty(capacity), np.empty(capacity, np.int64)
        seen[:ready], nodes[:ready] = self.last_seen_at[:ready], self.node_rows[:ready]
        self.last_seen_at, self.node_rows = seen, nodes
        self.by_group = self._event_planes(self.by_group["event_at"].shape[0], capacity)

    def _event_planes(self, depth: int, capacity: int) -> dict[str, AnyArray]:
        """The event planes with more room; nothing is written where no row is in use."""
        made, ready = {}, self._ready
        for name, (dtype, initial) in EVENT_PLANES.items():
            before = self.by_group[name]
            made[name] = np.empty((depth, capacity), dtype)
            made[name][: before.shape[0], :ready] = before[:, :ready]
            made[name][before.shape[0] :, :ready] = initial
        return made


def _closed_up(array: Array, keep: I64) -> Array:
    """Another array, so that who reads the former one finds its rows where they were."""
    closed = np.empty_like(array)
    closed[: keep.size] = array[keep]
    return cast("Array", closed)
