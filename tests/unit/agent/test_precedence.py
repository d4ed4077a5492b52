"""One reading of one source, where several read the same."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwarden_agent.precedence import (
    FRESH_INTERVALS,
    Admitted,
    Precedence,
    SourceOrder,
    admit_all,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

NATIVE, EXPORTER, SECOND = "nvml", "exporter_9400", "exporter_9835"
ORDER = (NATIVE, EXPORTER, SECOND)
INTERVALS = {NATIVE: 5.0, EXPORTER: 15.0, SECOND: 15.0, "host": 5.0}
GONE = Unavailable("nvml_library_not_found")
Rows = Mapping[EntityKind, Mapping[str, Mapping[str, Reading]]]


def gpu(**row: Reading) -> Rows:
    return {EntityKind.GPU: {"GPU-a": row}}


def admitted(rows: Rows) -> Mapping[str, Reading]:
    return rows[EntityKind.GPU]["GPU-a"]


def precedence(*exporter_first: str) -> Precedence:
    return Precedence(SourceOrder(ORDER, exporter_first), INTERVALS)


def test_a_native_number_goes_before_an_exporters() -> None:
    both = precedence()
    assert admitted(both.admit(NATIVE, gpu(gpu_power_watts=300.0), 0.0).rows)
    rows = both.admit(EXPORTER, gpu(gpu_power_watts=301.0, gpu_temperature_celsius=40), 1.0).rows
    assert admitted(rows) == {"gpu_temperature_celsius": 40}


def test_a_native_number_stands_where_an_exporter_was_first_to_answer() -> None:
    both = precedence()
    both.admit(EXPORTER, gpu(gpu_power_watts=301.0), 0.0)
    assert admitted(both.admit(NATIVE, gpu(gpu_power_watts=300.0), 1.0).rows) == {
        "gpu_power_watts": 300.0
    }


def test_an_exporters_number_stands_in_for_a_native_reason() -> None:
    both = precedence()
    both.admit(NATIVE, gpu(gpu_power_watts=GONE), 0.0)
    assert admitted(both.admit(EXPORTER, gpu(gpu_power_watts=301.0), 1.0).rows) == {
        "gpu_power_watts": 301.0
    }
    assert admitted(both.admit(NATIVE, gpu(gpu_power_watts=GONE), 5.0).rows) == {}


def test_of_two_reasons_the_first_source_has_it() -> None:
    both = precedence()
    both.admit(NATIVE, gpu(gpu_power_watts=GONE), 0.0)
    assert admitted(both.admit(EXPORTER, gpu(gpu_power_watts=Unavailable("x")), 1.0).rows) == {}


def test_a_source_that_fell_silent_keeps_nobody_silent() -> None:
    both = precedence()
    both.admit(NATIVE, gpu(gpu_power_watts=300.0), 0.0)
    late = FRESH_INTERVALS * INTERVALS[NATIVE] + 0.1
    assert admitted(both.admit(EXPORTER, gpu(gpu_power_watts=301.0), late).rows)


def test_the_settings_turn_the_order_for_the_metrics_they_name() -> None:
    both = precedence("gpu_power_*")
    numbers = gpu(gpu_power_watts=300.0, gpu_temperature_celsius=40)
    both.admit(EXPORTER, gpu(gpu_power_watts=301.0, gpu_temperature_celsius=41), 0.0)
    assert admitted(both.admit(NATIVE, numbers, 1.0).rows) == {"gpu_temperature_celsius": 40}


def test_of_two_exporters_the_first_in_the_settings_has_it() -> None:
    both = precedence()
    both.admit(EXPORTER, gpu(gpu_power_watts=301.0), 0.0)
    assert admitted(both.admit(SECOND, gpu(gpu_power_watts=302.0), 1.0).rows) == {}


def test_other_entities_and_native_sources_among_themselves_are_left_alone() -> None:
    alone = precedence()
    rows = gpu(gpu_power_watts=300.0)
    assert alone.admit(NATIVE, rows, 0.0) == Admitted(rows)
    assert alone.admit("host", rows, 1.0) == Admitted(rows)
    other: Rows = {EntityKind.GPU: {"GPU-b": {"gpu_power_watts": 1.0}}}
    assert alone.admit(EXPORTER, other, 2.0) == Admitted(other)


def test_at_one_moment_each_reading_is_of_one_source_whatever_the_order_of_calls() -> None:
    sources = {
        EXPORTER: gpu(gpu_power_watts=301.0, gpu_pcie_link_width=16),
        NATIVE: gpu(gpu_power_watts=300.0, gpu_pcie_link_width=GONE),
    }
    done = admit_all(SourceOrder(ORDER), sources)
    assert admitted(done[NATIVE]) == {"gpu_power_watts": 300.0}
    assert admitted(done[EXPORTER]) == {"gpu_pcie_link_width": 16}


def test_an_exporter_says_nothing_of_a_gpu_that_is_lost() -> None:
    both = precedence("*")
    repeated = gpu(gpu_power_watts=301.0)
    lost = gpu(gpu_present=0.0, gpu_power_watts=Unavailable("gpu_is_lost"))
    both.admit(EXPORTER, repeated, 0.0)
    assert both.admit(NATIVE, lost, 1.0).rows == lost
    assert admitted(both.admit(EXPORTER, repeated, 2.0).rows) == {}
