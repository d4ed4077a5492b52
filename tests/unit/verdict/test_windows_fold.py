"""Folding against its definition, series by series, and together against one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import FAST_S, SLOW_S, FleetState, KindView, ReadTable
from gpuwarden_verdict.windows.planes import F32, F64
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema

GPU = EntityKind.GPU
GAUGE, OTHER, COUNTER, RARE = "gauge_a", "gauge_b", "counter_a", "counter_b"
COLUMNS = {
    GAUGE: Column(GAUGE, Storage.F32, MetricKind.GAUGE, ""),
    OTHER: Column(OTHER, Storage.F32, MetricKind.GAUGE, ""),
    COUNTER: Column(COUNTER, Storage.COUNTER, MetricKind.COUNTER, ""),
    RARE: Column(RARE, Storage.COUNTER, MetricKind.COUNTER, ""),
}
SCHEMAS = tuple(
    Schema(GPU, tuple(COLUMNS[name] for name in names))
    for names in (
        (GAUGE, OTHER, COUNTER, RARE),
        (GAUGE, COUNTER),
        (OTHER,),
        (OTHER, RARE),
        (GAUGE,),
    )
)


@dataclass
class Series:
    """What the definition says of one series."""

    counts: bool
    number: float = math.nan
    number_at: float = math.nan
    changed_at: float = math.nan
    hour: float = math.nan
    fast: float = math.nan
    slow: float = math.nan
    variance: float = math.nan
    coverage: float = math.nan
    highest: float = math.nan
    resets: int = 0
    last: float = math.nan
    seen_at: float = -math.inf

    def read(self, value: float, at: float) -> None:
        """One reading."""
        self.seen_at, self.last = at, value
        if math.isnan(value):
            return
        first = math.isnan(self.number)
        step = 0.0 if first else at - self.number_at
        delta = 0.0 if first else value - self.number
        self._fold(value, delta, step)
        self.coverage = (0.0 if first else self.coverage) * math.exp(-step / 3600) + step
        self.highest = value if first else max(self.highest, value)
        if first or delta:
            self.changed_at = at
        self.number, self.number_at = value, at

    def _fold(self, value: float, delta: float, step: float) -> None:
        level = value
        if self.counts:
            self.resets += delta < 0
            growth = value if delta < 0 else delta
            before = 0.0 if math.isnan(self.hour) else self.hour
            self.hour = before * math.exp(-step / 3600) + growth
            if step <= 0:
                return
            level = growth / step
        if math.isnan(self.slow):
            self.fast, self.slow, self.variance = level, level, 0.0
            return
        weight = 1 - math.exp(-step / SLOW_S)
        off = level - self.slow
        self.variance = (1 - weight) * (self.variance + weight * off * off)
        self.slow += weight * off
        self.fast += (1 - math.exp(-step / FAST_S)) * (level - self.fast)


numbers = st.one_of(st.integers(0, 60).map(float), st.just(math.nan))
tables = st.lists(
    st.tuples(
        st.integers(0, len(SCHEMAS) - 1),
        st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
        st.lists(numbers, min_size=12, max_size=12),
        st.sampled_from([-7.0, 0.0, 1.0, 5.0, 5.0, 5.0, 90.0, 4000.0]),
    ),
    max_size=25,
)


def read_table(
    state: FleetState, schema: Schema, gpus: list[int], values: list[float], at: float
) -> ReadTable:
    rows = state.rows_of(GPU, [f"g{gpu}" for gpu in gpus])
    block = np.array(values[: len(schema.columns) * len(gpus)]).reshape(-1, len(gpus))
    split = schema.f32_count
    narrow, wide = block[:split].astype("<f4").tobytes(), block[split:].astype("<f8").tobytes()
    return ReadTable(GPU, rows, schema, narrow, wide, (), at)


def fleet() -> FleetState:
    state = FleetState()
    for gpu in range(3):
        state.register(EntityRef(GPU, f"g{gpu}", f"n{gpu}"))
    return state


@settings(max_examples=100)
@given(tables)
def test_every_plane_is_what_its_definition_says(
    steps: list[tuple[int, list[int], list[float], float]],
) -> None:
    state = fleet()
    series = {(gpu, name): Series(name in (COUNTER, RARE)) for gpu in range(3) for name in COLUMNS}
    at, late = 1000.0, 0
    for number, gpus, values, step in steps:
        schema, at = SCHEMAS[number], at + step
        state.apply_batches([[read_table(state, schema, gpus, values, at)]])
        names = [column.name for column in schema.columns]
        for place, gpu in enumerate(gpus):
            if any(series[gpu, name].seen_at > at for name in names):
                late += 1
                continue
            for line, name in enumerate(names):
                series[gpu, name].read(values[line * len(gpus) + place], at)
    assert state.late_rows == late
    for (gpu, name), one in series.items():
        check(state.view(GPU), gpu, name, one)


def check(view: KindView, gpu: int, name: str, one: Series) -> None:
    if name not in view.metrics:
        return
    now = 1e5
    found: dict[str, tuple[F32 | F64, float]] = {
        "last": (view.last(name), one.last),
        "age": (view.age_s(name, now), now - one.number_at),
        "changed": (view.last_change_at(name), one.changed_at),
        "steady": (view.steady_s(name), one.number_at - one.changed_at),
        "hour": (view.increment_1h(name), one.hour),
        "fast": (view.ewma_fast(name), one.fast),
        "slow": (view.ewma_slow(name), one.slow),
        "variance": (view.variance(name), one.variance),
        "coverage": (view.coverage_s(name), one.coverage),
        "highest": (view.highest(name), one.highest),
        "resets": (view.resets(name), float(one.resets)),
    }
    for what, (column, expected) in found.items():
        value = float(column[gpu])
        assert value == pytest.approx(expected, rel=1e-4, abs=1e-3, nan_ok=True), (what, one)


@settings(max_examples=60)
@given(st.lists(tables, min_size=3, max_size=3))
def test_batches_of_several_nodes_together_are_as_one_after_the_other(
    nodes: list[list[tuple[int, list[int], list[float], float]]],
) -> None:
    together, single = fleet(), fleet()
    at = [1000.0] * 3
    for turn in range(max(map(len, nodes))):
        batches = []
        for node, steps in enumerate(nodes):
            part = steps[2 * turn : 2 * turn + 2]
            batch = []
            for number, _, values, step in part:
                at[node] += step
                batch.append(read_table(single, SCHEMAS[number], [node], values, at[node]))
            batches.append(batch)
        together.apply_batches(batches)
        for batch in batches:
            single.apply_batches([batch])
    left, right = together.view(GPU), single.view(GPU)
    assert set(left.metrics) == set(right.metrics)
    for name in left.metrics:
        for getter in ("last", "increment_24h", "ewma_slow", "variance", "coverage_s", "steady_s"):
            np.testing.assert_allclose(
                getattr(left, getter)(name), getattr(right, getter)(name), rtol=1e-5
            )
        assert left.missing_code(name).tolist() == right.missing_code(name).tolist()


def test_two_nodes_that_name_one_gpu_in_one_go_lose_nothing() -> None:
    state = fleet()
    schema = SCHEMAS[1]
    for at, total in ((1000.0, 1.0), (1005.0, 3.0)):
        first = read_table(state, schema, [0], [40.0, total], at)
        second = read_table(state, schema, [0], [41.0, total + 1], at + 1)
        state.apply_batches([[first], [second]])
    view = state.view(GPU)
    assert view.last(GAUGE)[0] == 41.0
    assert view.increment_1h(COUNTER)[0] == pytest.approx(3.0, rel=0.01)
