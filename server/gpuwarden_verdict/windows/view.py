"""What sweeps and features read: arrays of all entities of one kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows.planes import (
    DAY_S,
    F32,
    F64,
    HOUR_S,
    I64,
    NUMBER,
    SIDES,
    U8,
    AnyArray,
    Array,
    Bool,
    KindPlanes,
    Section,
)
from gpuwarden_wire.metrics import Storage
from gpuwarden_wire.registry import METRIC_BY_NAME

_COUNTERS_FIRST = (Storage.COUNTER, Storage.F32)
_COUNTERS_LAST = (Storage.F32, Storage.COUNTER)


class KindView:
    """The state of all N entities of one kind, in row order; NaN where there is no number.

    Arrays are copies or windows onto live state: use them under the owner's lock and never write to
    them. A metric that nobody ever sent is all NaN, code 4. Times are epoch
    seconds of the agents' clocks.
    """

    def __init__(self, planes: KindPlanes) -> None:
        self.changes = planes.changes
        self._planes = planes
        self._columns: dict[tuple[str, str], AnyArray] = {}
        self._picked_of: tuple[KindView, I64] | None = None

    def __len__(self) -> int:
        return len(self._planes.refs)

    @property
    def refs(self) -> Sequence[EntityRef]:
        """The entities, in row order."""
        return self._planes.refs

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that have ever been sent for this kind."""
        return tuple(self._planes.metrics)

    @property
    def groups(self) -> frozenset[EventGroup]:
        """Groups of which any event ever came for this kind."""
        return frozenset(self._planes.groups)

    @property
    def node_rows(self) -> I64:
        """Row of each entity's node in the view of nodes, int64, shape (N,)."""
        return self._planes.node_rows[: len(self)]

    def last(self, metric: str) -> F32:
        """Latest reading, in the metric's unit, float32; NaN where it was no number."""
        column: F32 = self._kept("last", metric)
        return column

    def age_s(self, metric: str, now: float) -> F32:
        """Seconds from the latest number to `now`, float32; NaN where there never was one."""
        return (now - self._value_at(metric)).astype(np.float32)

    def lag_s(self, metric: str) -> F32:
        """Seconds from the latest number to the entity's latest reading of anything, float32.

        Both are the agent's clock, so that a node whose clock is off is judged right.
        """
        return (self.last_seen_at() - self._value_at(metric)).astype(np.float32)

    def steady_s(self, metric: str) -> F32:
        """Seconds over which the present number has been read again and again, float32.

        0 where it was read once only; NaN where there is none.
        """
        return self._plane("steady", metric)

    def missing_code(self, metric: str) -> U8:
        """0 a number, 1 not supported, 2 unavailable, 3 stale, 4 never sent; uint8."""
        column: U8 = self._kept("missing", metric)
        return column

    def present(self, metric: str, within_s: float) -> Bool:
        """Whether the latest reading is a number, at most so far behind the entity's others.

        Both times are the agent's clock, so that a node whose clock is off is judged right.
        """
        lane = self._kept("lane_at", metric)  # of a number: when it was read
        with np.errstate(invalid="ignore"):
            current: Bool = (self.last_seen_at() - lane).astype(np.float32) <= within_s
        current &= self.missing_code(metric) == NUMBER
        return current

    def increment_1h(self, metric: str) -> F32:
        """Growth of a counter, decayed with time constant 1 h to the latest reading, float32.

        A steady counter shows about its growth of the last hour. 0 from the first number on, NaN
        before and for metrics that are no counters. A counter that went back adds what it shows.
        """
        return self._plane("increment_1h", metric)

    def increment_24h(self, metric: str) -> F32:
        """As `increment_1h` with time constant 24 h."""
        return self._plane("increment_24h", metric)

    def ewma_fast(self, metric: str) -> F32:
        """Mean with time constant FAST_S, float32; of counters: of the rate per second."""
        return self._plane("fast", metric)

    def ewma_slow(self, metric: str) -> F32:
        """Mean with time constant SLOW_S, float32; of counters: of the rate per second."""
        return self._plane("slow", metric)

    def variance(self, metric: str) -> F32:
        """Variance around the slow mean with the same time constant, float32, >= 0."""
        return self._plane("variance", metric)

    def last_change_at(self, metric: str) -> F64:
        """When the number last changed or was first seen, float64; NaN where none was."""
        return self._value_at(metric) - self._plane("steady", metric)

    def coverage_s(self, metric: str) -> F32:
        """Time between numbers, decayed as `increment_1h` is, float32: their quotient is a rate.

        0 after one number; about 3600 under steady reading; NaN where there never was one.
        """
        return self._plane("coverage", metric)

    def highest(self, metric: str) -> F32:
        """Highest number since first sight, float32."""
        return self._plane("highest", metric)

    def resets(self, metric: str) -> F32:
        """How often the counter went back since first sight, float32."""
        column: F32 = self._kept("resets", metric)
        return column

    def events_1h(self, group: EventGroup, now: float | None = None) -> F32:
        """Events of a group, decayed with time constant 1 h, float32, 0 where none.

        Decayed to `now`, or without it to the entity's latest reading (its own clock).
        """
        return self._events("events_1h", HOUR_S, group, now)

    def events_24h(self, group: EventGroup, now: float | None = None) -> F32:
        """As `events_1h` with time constant 24 h."""
        return self._events("events_24h", DAY_S, group, now)

    def last_event_at(self, group: EventGroup) -> F64:
        """When the latest event of a group was observed, float64, NaN where none."""
        if group not in self._planes.groups:
            return np.full(len(self), np.nan)
        return self._planes.by_group["event_at"][self._planes.groups[group], : len(self)]

    def last_seen_at(self) -> F64:
        """When the latest reading of the entity was observed, float64, NaN where none."""
        return self._planes.last_seen_at[: len(self)]

    def _events(self, name: str, constant: float, group: EventGroup, now: float | None) -> F32:
        if group not in self._planes.groups:
            return self._full(0.0)
        counts = self._planes.by_group[name][self._planes.groups[group], : len(self)]
        until = self.last_seen_at() if now is None else now
        idle = np.fmax(until - self.last_event_at(group), 0.0)  # 0 where none ever came
        return (counts * np.exp(-idle / constant)).astype(np.float32)

    def _last(self, metric: str) -> F32:
        section, slot = self._place(metric)
        if section is None:
            return self._full(np.nan)
        if section.storage is Storage.COUNTER:
            with np.errstate(over="ignore"):
                number = self._side("total", metric).astype(np.float32)
        else:
            number = section.block[: len(self), section.place["number"], slot].copy()
        number[self.missing_code(metric) != NUMBER] = np.nan
        return number

    def _value_at(self, metric: str) -> F64:
        """When the latest number was read, epoch seconds, NaN where there never was one."""
        column: F64 = self._kept("value_at", metric)
        return column

    def _lane_times(self, metric: str) -> F64:
        """When the metric was last read, a number or not."""
        section, slot = self._place(metric)
        if section is None:
            return np.full(len(self), np.nan)
        times: F64 = section.lane_at[: len(self), section.lanes.lane_of(slot)].copy()
        return times

    def _number_times(self, metric: str) -> F64:
        section, slot = self._place(metric)
        if section is None:
            return np.full(len(self), np.nan)
        times = section.lane_at[: len(self), section.lanes.lane_of(slot)]
        at: F64 = times - section.sides["behind"][: len(self), slot]
        return at

    def _plane(self, name: str, metric: str) -> F32:
        column: F32 = self._kept(name, metric)
        return column

    def _column(self, name: str, metric: str) -> F32:
        section, slot = self._place(metric)
        if section is None or name not in section.place:
            return self._full(np.nan)
        return section.block[: len(self), section.place[name], slot].copy()

    def _side(self, name: str, metric: str) -> AnyArray:
        section, slot = self._place(metric)
        if section is None or name not in section.sides:
            dtype, initial = SIDES[name]
            return np.full(len(self), initial, dtype)
        column: AnyArray = section.sides[name][: len(self), slot].copy()
        return column

    def _place(self, metric: str) -> tuple[Section | None, int]:
        """Where a metric lies: as the registry says where it came in both ways."""
        known = METRIC_BY_NAME.get(metric)
        is_counter = known is not None and known.storage is Storage.COUNTER
        for storage in _COUNTERS_FIRST if is_counter else _COUNTERS_LAST:
            section = self._planes.section_of(storage)
            if metric in section.slots:
                return section, section.slots[metric]
        return None, -1

    def only(self, rows: I64) -> KindView:
        """Some entities, in the order of `rows`: far cheaper than all.

        What was read of all is theirs too; anything else is as it is now.
        """
        some = KindView(self._planes.picked(rows))
        some._picked_of = self, rows
        return some

    def read_ahead(self, columns: Sequence[tuple[str, str]]) -> None:
        """Copy columns, by plane and metric, that will be asked for."""
        for name, metric in columns:
            self._kept(name, metric)

    def columns_read(self) -> list[tuple[str, str]]:
        """Planes and metrics asked for so far."""
        return [(name, metric) for name, metric in self._columns if name]

    def remembered(self, name: str, make: Callable[[], Array]) -> Array:
        """Something made of this view, made once while nothing changes."""
        return self._once(("", name), make)

    def _kept(self, name: str, metric: str) -> Any:
        """A column, read once while nothing changes: it lies scattered over the fleet's rows."""
        return self._once((name, metric), lambda: self._picked(name, metric))

    def _picked(self, name: str, metric: str) -> AnyArray:
        """From what was read of all, where these are some of them and it was."""
        if self._picked_of is not None:
            whole, rows = self._picked_of
            column = whole._columns.get((name, metric))
            if column is not None and whole.changes == self.changes:
                picked: AnyArray = column[rows]
                return picked
        return self._read(name, metric)

    def _once(self, key: tuple[str, str], read: Callable[[], Array]) -> Array:
        if self.changes != self._planes.changes:
            self._columns.clear()
            self.changes = self._planes.changes
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = read()
        return cast("Array", column)

    def _read(self, name: str, metric: str) -> AnyArray:
        if name == "last":
            return self._last(metric)
        if name == "lane_at":
            return self._lane_times(metric)
        if name == "value_at":
            return self._number_times(metric)
        return self._side(name, metric) if name in SIDES else self._column(name, metric)

    def _full(self, value: float) -> F32:
        return np.full(len(self), value, np.float32)
