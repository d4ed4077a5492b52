"""Planes: one array a kept quantity, one row a metric, one column an entity."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_wire.schema import Schema

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]

FAST_S = 60.0
"""Time constant of the fast mean: a dozen readings at the usual 5 s."""
SLOW_S = 3600.0
"""Time constant of the slow mean and of the variance around it."""
HOUR_S = 3600.0
DAY_S = 86400.0

NUMBER, NOT_SUPPORTED, UNAVAILABLE, STALE, NEVER = range(5)

PLANES = MappingProxyType(
    {
        "last": (np.float32, np.nan),  # latest reading, NaN where it was no number
        "number": (np.float64, np.nan),  # latest number: what counters are held against
        "missing": (np.uint8, NEVER),  # why `last` is NaN
        "seen_at": (np.float64, -np.inf),  # time of the latest reading or reason
        "value_at": (np.float64, np.nan),  # time of the latest number
        "changed_at": (np.float64, np.nan),  # time when the number last changed (or was first seen)
        "increment_1h": (np.float32, np.nan),
        "increment_24h": (np.float32, np.nan),
        "fast": (np.float32, np.nan),
        "slow": (np.float32, np.nan),
        "variance": (np.float32, np.nan),
        "coverage": (np.float32, np.nan),
        "highest": (np.float32, np.nan),  # since first sight
        "resets": (np.float32, 0.0),  # times a counter went back
    }
)
"""dtype and initial value of each plane: 67 bytes a series, 17 float32 planes."""

EVENT_PLANES = MappingProxyType(
    {
        "events_1h": (np.float32, 0.0),
        "events_24h": (np.float32, 0.0),
        "event_at": (np.float64, np.nan),
    }
)
ROW_PLANES = MappingProxyType({"last_seen_at": (np.float64, np.nan)})

_FIRST_CAPACITY = 16


class KindPlanes:
    """All planes of one kind of entity, growing by doubling in both directions.

    Attributes:
        refs: Entities in row order.
        index: Row by entity key.
        metrics: Row in the planes by metric name.
        schema_rows: Rows of a schema's metrics, in its order.
        groups: Row in the event planes by group.
        by_metric: The planes of PLANES, shape (metrics, capacity).
        by_group: The planes of EVENT_PLANES, shape (groups, capacity).
        by_row: The planes of ROW_PLANES, shape (1, capacity).
        node_rows: Row of each entity's node among the nodes, shape (capacity,).
    """

    def __init__(self) -> None:
        self.refs: list[EntityRef] = []
        self.index: dict[str, int] = {}
        self.metrics: dict[str, int] = {}
        self.schema_rows: dict[Schema, AnyArray] = {}
        self.groups: dict[EventGroup, int] = {}
        self.by_metric = _make(PLANES, 0, _FIRST_CAPACITY)
        self.by_group = _make(EVENT_PLANES, 0, _FIRST_CAPACITY)
        self.by_row = _make(ROW_PLANES, 1, _FIRST_CAPACITY)
        self.node_rows: I64 = np.full(_FIRST_CAPACITY, -1, np.int64)

    @property
    def capacity(self) -> int:
        """Columns that the arrays have room for."""
        return int(self.node_rows.shape[0])

    def add(self, ref: EntityRef) -> int:
        """A new row for `ref`, all planes at their initial values."""
        row = len(self.refs)
        if row == self.capacity:
            self._widen(2 * row)
        self.refs.append(ref)
        self.index[ref.key] = row
        return row

    def metric_row(self, name: str) -> int:
        """Row of a metric in the planes, made on first use."""
        row = self.metrics.setdefault(name, len(self.metrics))
        if row >= self.by_metric["last"].shape[0]:
            self.by_metric = _deepen(self.by_metric, PLANES, max(8, 2 * row))
        return row

    def group_row(self, group: EventGroup) -> int:
        """Row of an event group in the planes, made on first use."""
        row = self.groups.setdefault(group, len(self.groups))
        if row >= self.by_group["event_at"].shape[0]:
            self.by_group = _deepen(self.by_group, EVENT_PLANES, max(4, 2 * row))
        return row

    def drop(self, keys: set[str]) -> None:
        """Remove entities; the rows of the others close up."""
        keep = [row for row, ref in enumerate(self.refs) if ref.key not in keys]
        count = len(self.refs)
        for planes, specs in self._tables():
            for name, (_, initial) in specs.items():
                plane = planes[name]
                plane[:, : len(keep)] = plane[:, keep]
                plane[:, len(keep) : count] = initial
        self.node_rows[: len(keep)] = self.node_rows[keep]
        self.refs[:] = [self.refs[row] for row in keep]
        self.index = {ref.key: row for row, ref in enumerate(self.refs)}

    def _tables(self) -> tuple[tuple[dict[str, AnyArray], Any], ...]:
        return (
            (self.by_metric, PLANES),
            (self.by_group, EVENT_PLANES),
            (self.by_row, ROW_PLANES),
        )

    def _widen(self, capacity: int) -> None:
        for planes, specs in self._tables():
            for name, (dtype, initial) in specs.items():
                old = planes[name]
                wide = np.full((old.shape[0], capacity), initial, dtype)
                wide[:, : old.shape[1]] = old
                planes[name] = wide
        rows = np.full(capacity, -1, np.int64)
        rows[: self.capacity] = self.node_rows
        self.node_rows = rows


def _make(specs: Any, depth: int, capacity: int) -> dict[str, AnyArray]:
    return {
        name: np.full((depth, capacity), initial, dtype) for name, (dtype, initial) in specs.items()
    }


def _deepen(planes: dict[str, AnyArray], specs: Any, depth: int) -> dict[str, AnyArray]:
    made = _make(specs, depth, next(iter(planes.values())).shape[1])
    for name, plane in planes.items():
        made[name][: plane.shape[0]] = plane
    return made
