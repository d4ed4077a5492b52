"""A frame: all readings of the fleet at one moment, and the events since the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_wire.batches import Table
from gpuwarden_wire.events import Event
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema


@dataclass(frozen=True, slots=True, eq=False)
class FrameTable:
    """Readings of all entities of one kind; a node's entities are consecutive rows.

    Attributes:
        schema: Columns, f32 first, then counters.
        keys: Names over the fleet, one a row.
        wire_keys: Names inside the node's batch.
        node_of: Index into the frame's nodes, shape (rows,), ascending.
        values: float64, shape (columns, rows); NaN where a reading is missing.
        reported: Which rows arrived at all, bool, shape (rows,).
    """

    schema: Schema
    keys: Sequence[str]
    wire_keys: Sequence[str]
    node_of: NDArray[np.int64]
    values: NDArray[np.float64]
    reported: NDArray[np.bool_]

    @property
    def kind(self) -> EntityKind:
        """Kind of the entities."""
        return self.schema.entity_kind

    def column(self, metric: str) -> NDArray[np.float64]:
        """One metric of all rows, a view.

        Raises:
            KeyError: The schema has no such column.
        """
        for index, column in enumerate(self.schema.columns):
            if column.name == metric:
                values: NDArray[np.float64] = self.values[index]
                return values
        raise KeyError(metric)


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event in the wire's terms, with the node and boot that it belongs to."""

    node_id: str
    boot_id: str
    event: Event


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One moment of a fleet.

    Attributes:
        at: Epoch seconds.
        nodes: Node names; `node_of` of the tables points here.
        boot_ids: Boot of each node.
        tables: One a kind of entity.
        events: Since the frame before, in order.
        late: Nodes, as indices, whose readings arrive late where a sink has a time of arrival.
    """

    at: float
    nodes: tuple[str, ...]
    boot_ids: tuple[str, ...]
    tables: tuple[FrameTable, ...]
    events: tuple[NodeEvent, ...]
    late: frozenset[int] = frozenset()


def wire_tables(frame: Frame, node: int) -> tuple[Table, ...]:
    """One node's tables as the wire carries them; rows that were not reported are absent.

    Args:
        frame: The moment.
        node: Index into `frame.nodes`.
    """
    tables = (_wire_table(table, node, frame.at) for table in frame.tables)
    return tuple(table for table in tables if table is not None)


def _wire_table(table: FrameTable, node: int, at: float) -> Table | None:
    first, last = np.searchsorted(table.node_of, (node, node + 1))
    rows = np.arange(first, last)[table.reported[first:last]]
    if rows.size == 0:
        return None
    f32_count = table.schema.f32_count
    return Table(
        schema=table.schema.hash,
        observed_at=at,
        entities=tuple(table.wire_keys[row] for row in rows),
        f32=table.values[:f32_count, rows].astype("<f4").tobytes(),
        f64=table.values[f32_count:, rows].astype("<f8").tobytes(),
    )
