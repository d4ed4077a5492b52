from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from gpuwarden_server.history.buffer import OpenMinutes
from gpuwarden_server.history.meters import HistoryMeters
from gpuwarden_server.history.sealing import Sealer, gather, readings_of
from gpuwarden_verdict.segments.blocks import Block
from gpuwarden_verdict.windows import JoinedTables, join_as, join_tables, layout_of
from gpuwarden_wire.batches import Table
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema

SCHEMAS = tuple(
    Schema(
        kind,
        (
            Column(f"{kind}_level", Storage.F32, MetricKind.GAUGE, ""),
            Column(f"{kind}_count", Storage.COUNTER, MetricKind.COUNTER, ""),
        ),
    )
    for kind in (EntityKind.GPU, EntityKind.NODE)
)
LAYOUT = layout_of(SCHEMAS, [schema.hash for schema in SCHEMAS], [("g0", "g1"), ("",)])


def open_minutes() -> OpenMinutes:
    return OpenMinutes(lambda: 0.0, HistoryMeters(CollectorRegistry()))


def batch_at(*times: float, hole: bool = False) -> JoinedTables:
    tables = [
        Table(
            schema=schema.hash,
            observed_at=at,
            entities=entities,
            f32=np.full(len(entities), np.nan if hole else at % 60, "<f4").tobytes(),
            f64=np.full(len(entities), at, "<f8").tobytes(),
        )
        for schema, entities, at in zip(SCHEMAS, LAYOUT.entities, times, strict=True)
    ]
    return join_as(LAYOUT, tables, times)


def same(some: Sequence[Block], others: Sequence[Block]) -> bool:
    return len(some) == len(others) and all(
        (one.kind, one.columns, one.rows, one.reasons)
        == (other.kind, other.columns, other.rows, other.reasons)
        and np.array_equal(one.times, other.times)
        and np.array_equal(one.why, other.why)
        and all(
            np.array_equal(plane, other.planes[name], equal_nan=True)
            for name, plane in one.planes.items()
        )
        for one, other in zip(some, others, strict=True)
    )


def apart(batches: Sequence[JoinedTables]) -> list[JoinedTables]:
    """The same, each table a batch of its own."""
    return [
        join_tables([(schema, table, table.observed_at)])
        for batch in batches
        for schema, table in zip(SCHEMAS, batch.tables(), strict=True)
    ]


def test_readings_are_the_same_whichever_way_batches_came() -> None:
    regular = [batch_at(600.0, 600.5), batch_at(610.0, 610.0), batch_at(620.0, 621.0)]
    holes = [*regular, batch_at(630.0, 630.0, hole=True)]
    disorder = [regular[1], regular[0], regular[2], regular[1]]
    for batches in (regular, holes, disorder):
        assert same(readings_of("n0", batches), readings_of("n0", apart(batches)))
    assert readings_of("n0", regular)[1].times.tolist() == [600.5, 610.0, 621.0]


def test_nodes_rolled_up_together_come_out_as_each_by_itself() -> None:
    regular = [batch_at(600.0, 600.5), batch_at(610.0, 610.0), batch_at(620.0, 621.0)]
    fleet = {
        "n0": regular,
        "n1": [batch_at(601.0, 601.0), batch_at(611.0, 611.5), batch_at(622.0, 621.5)],
        "n2": [*regular, batch_at(630.0, 630.0, hole=True)],
        "n3": [regular[1], regular[0], regular[2], batch_at(630.0, 630.0)],
        "n4": apart(regular),
    }
    earlier = {"n0": [batch_at(550.0, 550.0)], "n1": [batch_at(620.0, 620.0)]}
    together = Sealer()
    together.remember(together.roll_up(gather(earlier.items(), together.rows.of)))
    found = together.roll_up(gather(fleet.items(), together.fork().rows.of))
    for node_id, batches in fleet.items():
        alone = Sealer()
        own = {node_id: earlier[node_id]} if node_id in earlier else {}
        alone.remember(alone.roll_up(gather(own.items())))
        expected = alone.roll_up(gather([(node_id, batches)]))
        held = [part for block in found if (part := block.of_node(node_id)) is not None]
        assert len(held) == len(expected)
        assert all(same_numbers(one, expected) for one in held)


def same_numbers(one: Block, expected: list[Block]) -> bool:
    """Whether one of the blocks says the same, its minute included."""
    return any(
        one.rows == other.rows
        and one.columns == other.columns
        and one.times.tolist() == other.times.tolist()
        and all(np.array_equal(one.planes[n], other.planes[n], True) for n in one.planes)
        and np.array_equal(one.why, other.why)
        for other in expected
    )


def test_what_a_checkpoint_kept_of_open_minutes_comes_back_as_the_same_batches() -> None:
    before, after = open_minutes(), open_minutes()
    noted = [batch_at(600.0, 600.5), batch_at(610.0, 610.0), batch_at(670.0, 670.0)]
    for batch in noted:
        before.note("n0", batch)
    after.restore(before.snapshot(["n0", "unknown"])(), lambda node_id: f"{node_id}-renamed")
    found = after.of_node("n0-renamed")
    assert [one.tables() for one in found] == [one.tables() for one in noted]
    assert len({id(one.layout) for one in found}) == 1


def test_a_batch_on_the_boundary_of_minutes_is_in_both() -> None:
    minutes = open_minutes()
    minutes.note("n0", batch_at(659.9, 660.1))
    kept = minutes.of_node("n0")
    assert [one.times for one in kept] == [(659.9,), (660.1,)]


def test_a_counter_read_once_a_minute_grows_before_it_is_sealed() -> None:
    counts = (600.0, 660.0, 735.0)  # its number is the time
    rolled = Sealer().by_minute(readings_of("n0", [batch_at(at, at) for at in counts]))
    grown = [block.planes["increase"][0, 0, 0] for block in rolled if block.kind == "gpu"]
    assert grown == [0.0, 60.0, 75.0]


def test_open_minutes_count_on_from_what_is_sealed_and_from_each_other() -> None:
    sealer = Sealer()
    sealer.remember(sealer.by_minute(readings_of("n0", [batch_at(600.0, 600.0)])))
    rolled = sealer.by_minute(readings_of("n0", [batch_at(660.0, 660.0), batch_at(725.0, 725.0)]))
    grown = [block.planes["increase"][0, 0, 0] for block in rolled if block.kind == "node"]
    assert grown == [60.0, 65.0]  # the second not from what is sealed: that would count twice
