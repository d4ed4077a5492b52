from __future__ import annotations

import math
from array import array

import pytest

from gpuwarden_wire.batches import MissingKind, pack_table
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.readings import NotSupported, Stale, Unavailable, is_number
from gpuwarden_wire.registry import METRIC_BY_NAME, METRICS, metrics_of
from gpuwarden_wire.schema import schema_for

SCHEMA = schema_for(EntityKind.NODE, ["node_interrupts_total", "node_load1", "node_uptime_seconds"])


def test_columns_of_f32_come_first() -> None:
    assert [column.name for column in SCHEMA.columns] == [
        "node_load1",
        "node_uptime_seconds",
        "node_interrupts_total",
    ]
    assert SCHEMA.f32_count == 2


def test_a_schema_is_named_by_its_content() -> None:
    assert (
        SCHEMA.hash
        == schema_for(
            EntityKind.NODE, ["node_load1", "node_uptime_seconds", "node_interrupts_total"]
        ).hash
    )
    assert SCHEMA.hash != schema_for(EntityKind.NODE, ["node_load1"]).hash
    assert len(SCHEMA.hash) == 16


def test_an_unknown_metric_has_no_schema() -> None:
    with pytest.raises(KeyError):
        schema_for(EntityKind.NODE, ["node_invented"])


def test_numbers_lie_column_after_column() -> None:
    table = pack_table(SCHEMA, 5.0, {"a": [1.0, 2.0, 2**53], "b": [3.0, 4.0, 7]})
    assert array("f", table.f32).tolist() == [1.0, 3.0, 2.0, 4.0]
    assert array("d", table.f64).tolist() == [float(2**53), 7.0]
    assert table.entities == ("a", "b")
    assert table.missing == ()


def test_what_is_missing_is_nan_with_its_reason() -> None:
    table = pack_table(SCHEMA, 5.0, {"": [Unavailable("io_error"), Stale(7.5), NotSupported()]})
    assert all(math.isnan(value) for value in array("f", table.f32))
    assert math.isnan(array("d", table.f64)[0])
    assert [(cell.column, cell.kind, cell.reason, cell.age_s) for cell in table.missing] == [
        (0, MissingKind.UNAVAILABLE, "io_error", 0.0),
        (1, MissingKind.STALE, "", 7.5),
        (2, MissingKind.NOT_SUPPORTED, "", 0.0),
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_missing(number: float) -> None:
    table = pack_table(SCHEMA, 5.0, {"": [number, 1.0, number]})
    assert [cell.reason for cell in table.missing] == ["not_finite", "not_finite"]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="row 'a': 1 readings, 3 columns"):
        pack_table(SCHEMA, 5.0, {"a": [1.0]})


def test_zero_is_a_number_and_missing_is_not() -> None:
    assert is_number(0)
    assert is_number(0.0)
    assert not is_number(Unavailable("x"))


def test_the_registry_keeps_its_own_rules() -> None:
    assert len(METRIC_BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith(f"{metric.entity_kind}_"), metric.name
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert (metric.storage is Storage.COUNTER) == (metric.kind is MetricKind.COUNTER)
        assert metric.source, metric.name
        assert metric.speaks_to, metric.name
        if metric.unit and metric.unit not in metric.name:
            assert metric.unit == "bytes_per_second", metric.name
    assert set(METRICS) == {metric for kind in EntityKind for metric in metrics_of(kind)}
