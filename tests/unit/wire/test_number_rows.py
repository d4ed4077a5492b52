from __future__ import annotations

from array import array
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.number_rows import NumberRow, RowLayout, joined
from gpuwarden_wire.readings import Missing, NotSupported, Reading, Stale, Unavailable
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.tables import TableMaker

NAMES = [*[metric.name for metric in metrics_of(EntityKind.GPU)][:12], "own_gauge", "own_total"]
NUMBERS = st.one_of(
    st.floats(-1e12, 1e12),
    st.sampled_from([0.0, -0.0, 1e308, -1e308, inf, -inf, nan]),
    st.floats(),
)
MISSING: st.SearchStrategy[Missing] = st.one_of(
    st.just(NotSupported()),
    st.sampled_from(["timeout", "gpu_is_lost"]).map(Unavailable),
    st.floats(0, 1e6).map(Stale),
)
ROWS = st.dictionaries(st.sampled_from(NAMES), st.one_of(NUMBERS, MISSING))


@given(calls=st.lists(st.lists(ROWS, max_size=3), min_size=1, max_size=4), beside=st.booleans())
def test_a_table_of_number_rows_is_that_of_the_same_rows(
    calls: list[list[dict[str, Reading]]], beside: bool
) -> None:
    packed, plain = TableMaker(), TableMaker()
    shared = [(EntityKind.GPU, "GPU-0")] if beside else []
    for rows in calls:
        by_key = {f"GPU-{n}": row for n, row in enumerate(rows)}
        numbered = {key: NumberRow.of(row) for key, row in by_key.items()}
        made = packed.tables("nvml", {EntityKind.GPU: numbered}, 1.0, shared)
        expected = plain.tables("nvml", {EntityKind.GPU: by_key}, 1.0, shared)
        assert repr(made) == repr(expected)  # NaN is not equal to itself


def test_rows_that_share_a_layout_give_the_same_table_call_after_call() -> None:
    layout = RowLayout(("gpu_power_watts", "gpu_energy_joules_total"), {"gpu_fan": NotSupported()})
    maker = TableMaker()
    for power in (100.0, 200.0):
        rows = {
            f"GPU-{n}": NumberRow(layout, array("d", (power + n, power * 1e9))) for n in range(2)
        }
        ((table, schema),) = maker.tables("nvml", {EntityKind.GPU: rows}, 1.0)
        assert schema.names == ("gpu_power_watts", "gpu_energy_joules_total")
        assert memoryview(table.f32).cast("f").tolist() == [power, power + 1]
        assert memoryview(table.f64).cast("d").tolist() == [power * 1e9] * 2
        assert table.missing == ()


def test_a_number_row_is_the_mapping_that_it_stands_for() -> None:
    plain: dict[str, Reading] = {"a": 1.0, "b": Unavailable("timeout"), "c": 3.0}
    row = NumberRow.of(plain)
    assert row == plain
    assert dict(row) == plain
    assert len(row) == 3
    assert row.keys() == plain.keys()
    assert (row.get("a"), row.get("b"), row.get("d"), row.get("d", 0)) == (
        1.0,
        Unavailable("timeout"),
        None,
        0,
    )
    assert "b" in row
    assert "d" not in row
    with pytest.raises(KeyError):
        row["d"]
    more: dict[str, Reading] = {"d": 4.0, "e": NotSupported()}
    assert joined(row, more) == plain | more
    assert joined(plain, more) == plain | more
    assert joined(row, more).layout is joined(row, dict(more)).layout
    with pytest.raises(ValueError, match="2 numbers, 1 names"):
        NumberRow(RowLayout(("a",)), array("d", (1.0, 2.0)))


def test_reasons_that_change_at_every_call_cost_bounded_memory() -> None:
    row = NumberRow.of({"a": 1.0})
    for age in range(1_000):
        found = joined(row, {"b": Stale(float(age))})
        assert found == {"a": 1.0, "b": Stale(float(age))}
    assert len(row.layout._derived) <= 64
