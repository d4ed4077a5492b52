"""Batches in one piece are folded as their tables are, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import FleetState, ReadTable, join_as, join_tables, layout_of
from gpuwarden_wire.batches import MissingCell, MissingKind, Table
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema

GPU, NODE = EntityKind.GPU, EntityKind.NODE
COLUMNS = (
    Column("level", Storage.F32, MetricKind.GAUGE, ""),
    Column("count", Storage.COUNTER, MetricKind.COUNTER, ""),
)
ON_GPU = Schema(GPU, COLUMNS)
ON_NODE = Schema(NODE, COLUMNS[:1])
NODES, GPUS = 5, 3
Tables = list[tuple[Schema, Table, float]]


def tables_of(node: int, at: float, rng: np.random.Generator) -> Tables:
    """A batch of a node: its GPUs, then itself; some cells missing, some with a reason."""
    narrow = rng.integers(0, 50, GPUS).astype("<f4")
    wide = np.cumsum(rng.integers(0, 5, GPUS)).astype("<f8") + at
    narrow[rng.random(GPUS) < 0.2] = np.nan
    missing = (MissingCell(row=1, column=0, kind=MissingKind.NOT_SUPPORTED),)
    gone = bool(np.isnan(narrow[1]))
    gpus = Table(
        schema=ON_GPU.hash,
        observed_at=at,
        entities=tuple(f"g{node}.{gpu}" for gpu in range(GPUS)),
        f32=narrow.tobytes(),
        f64=wide.tobytes(),
        missing=missing if gone else (),
    )
    level = rng.random(1).astype("<f4").tobytes()
    own = Table(schema=ON_NODE.hash, observed_at=at + 1, entities=("",), f32=level, f64=b"")
    return [(ON_GPU, gpus, at), (ON_NODE, own, at + 1)]


def fleet() -> FleetState:
    state = FleetState()
    for node in range(NODES):
        for gpu in range(GPUS):
            state.register(EntityRef(GPU, f"g{node}.{gpu}", f"n{node}"))
    return state


def rows_of(state: FleetState, node: int, tables: Tables) -> list[np.ndarray]:
    names = [t.entities if s.entity_kind is GPU else (f"n{node}",) for s, t, _ in tables]
    return [state.rows_of(s.entity_kind, n) for (s, _, _), n in zip(tables, names, strict=True)]


def test_joined_batches_are_folded_as_their_tables_are() -> None:
    one_by_one, together, rng = fleet(), fleet(), np.random.default_rng(1)
    for step, at in enumerate((100.0, 110.0, 105.0, 120.0, 120.0, 130.0)):
        nodes = range(step % 2, NODES)
        batches = {node: tables_of(node, at + node, rng) for node in nodes}
        for node, tables in batches.items():
            rows = rows_of(one_by_one, node, tables)
            for (schema, table, when), own in zip(tables, rows, strict=True):
                kind, missing = schema.entity_kind, table.missing
                read = ReadTable(kind, own, schema, table.f32, table.f64, missing, when)
                one_by_one.apply_batches([[read]])
        together.apply_joined(
            [join_tables(tables) for tables in batches.values()],
            [rows_of(together, node, tables) for node, tables in batches.items()],
        )
    assert one_by_one.late_rows == together.late_rows > 0
    names = [f"n{node}" for node in range(NODES)]
    assert one_by_one.export_nodes(names) == together.export_nodes(names)


def test_a_gpu_that_two_nodes_name_at_once_is_folded_twice() -> None:
    state, rng = fleet(), np.random.default_rng(2)
    tables = tables_of(0, 100.0, rng)
    later = [(schema, table, when + 10) for schema, table, when in tables]
    rows = rows_of(state, 0, tables)
    state.apply_joined([join_tables(tables), join_tables(later)], [rows, rows])
    assert state.late_rows == 0
    assert state.view(GPU).last_seen_at()[0] == 110.0


@pytest.mark.parametrize("missing", [False, True])
def test_joined_tables_come_apart_as_they_were(missing: bool) -> None:
    rng = np.random.default_rng(5)
    tables = next(
        found
        for found in (tables_of(1, 100.0, rng) for _ in range(100))
        if any(table.missing for _, table, _ in found) is missing
    )
    plain = [table for _, table, _ in tables]
    assert join_tables(tables).tables() == plain
    layout = layout_of(
        [ON_GPU, ON_NODE], [table.schema for table in plain], [table.entities for table in plain]
    )
    assert join_as(layout, plain, (100.0, 101.0)).tables() == plain
    assert layout.cells == 2 * GPUS + 1
