from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.windows import (
    FAST_S,
    NEVER,
    NOT_SUPPORTED,
    NUMBER,
    SLOW_S,
    STALE,
    UNAVAILABLE,
    CheckpointError,
    FleetState,
)
from gpuwarden_wire.batches import MissingCell, MissingKind
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema, schema_for

GPU = EntityKind.GPU
TEMPERATURE = "gpu_temperature_celsius"
ERRORS = "gpu_ecc_corrected_volatile_total"
SCHEMA = schema_for(GPU, [TEMPERATURE, ERRORS])


def ref(name: str, node: str = "n0") -> EntityRef:
    return EntityRef(GPU, name, node)


def put(
    state: FleetState,
    names: list[str],
    temperature: list[float],
    errors: list[float],
    at: float,
    missing: tuple[MissingCell, ...] = (),
) -> None:
    rows = state.rows_of(GPU, names)
    f32 = np.array([temperature], np.float32)
    state.apply_table(GPU, rows, SCHEMA, f32, np.array([errors]), missing, at)


def fleet(*names: str) -> FleetState:
    state = FleetState()
    for name in names:
        state.register(ref(name))
    return state


def test_rows_are_stable_idempotent_and_unknown_keys_are_minus_one() -> None:
    state = fleet("a", "b")
    assert state.register(ref("a")) == 0
    assert state.rows_of(GPU, ["b", "zz", "a"]).tolist() == [1, -1, 0]
    assert state.view(EntityKind.NODE).refs[0].key == "n0"
    assert state.view(GPU).node_rows.tolist() == [0, 0]


def test_growth_of_entities_and_metrics_keeps_what_is_there() -> None:
    state = fleet("a")
    put(state, ["a"], [40.0], [7.0], 100.0)
    for n in range(100):
        state.register(ref(f"x{n}", f"m{n}"))
    odd = Schema(
        GPU, tuple(Column(f"odd_{n}", Storage.F32, MetricKind.GAUGE, "") for n in range(40))
    )
    values = np.arange(40, dtype=np.float32)[:, None]
    state.apply_table(GPU, state.rows_of(GPU, ["x99"]), odd, values, np.empty((0, 1)), (), 100.0)
    view = state.view(GPU)
    assert len(view) == 101
    assert view.last(TEMPERATURE)[0] == 40.0
    assert view.last("odd_39")[100] == 39.0
    assert view.missing_code("odd_39")[0] == NEVER
    assert np.isnan(view.last("nobody_sends_this")).all()
    assert (view.missing_code("nobody_sends_this") == NEVER).all()


def test_missing_codes_tell_why_and_a_nan_without_reason_is_unavailable() -> None:
    state = fleet("a", "b", "c", "d")
    cells = (
        MissingCell(0, 0, MissingKind.NOT_SUPPORTED),
        MissingCell(1, 0, MissingKind.STALE, "", 9.0),
        MissingCell(99, 0, MissingKind.STALE),  # outside the table: ignored
    )
    nan = math.nan
    put(state, ["a", "b", "c", "d"], [nan, nan, math.inf, 5.0], [1.0] * 4, 100.0, cells)
    view = state.view(GPU)
    assert view.missing_code(TEMPERATURE).tolist() == [NOT_SUPPORTED, STALE, UNAVAILABLE, NUMBER]
    assert np.isnan(view.last(TEMPERATURE)[:3]).all()


def test_last_is_nan_while_missing_but_age_and_counter_live_on() -> None:
    state = fleet("a")
    put(state, ["a"], [40.0], [10.0], 100.0)
    put(state, ["a"], [math.nan], [math.nan], 110.0)
    view = state.view(GPU)
    assert np.isnan(view.last(TEMPERATURE)[0])
    assert view.age_s(TEMPERATURE, 130.0)[0] == 30.0
    assert view.lag_s(TEMPERATURE)[0] == 10.0
    put(state, ["a"], [40.0], [14.0], 120.0)
    assert state.view(GPU).increment_24h(ERRORS)[0] == pytest.approx(4.0)


def test_a_counter_that_goes_back_adds_what_it_shows_and_is_counted() -> None:
    state = fleet("a")
    for at, total in ((0.0, 100.0), (5.0, 103.0), (10.0, 2.0), (15.0, 2.0)):
        put(state, ["a"], [40.0], [total], at)
    view = state.view(GPU)
    assert view.increment_1h(ERRORS)[0] == pytest.approx(5.0, rel=0.01)
    assert view.resets(ERRORS)[0] == 1.0
    assert view.last_change_at(ERRORS)[0] == 10.0
    assert view.steady_s(ERRORS)[0] == 5.0


def test_counters_beyond_float32_keep_single_increments() -> None:
    state = fleet("a")
    put(state, ["a"], [40.0], [2.0**53 - 2], 0.0)
    put(state, ["a"], [40.0], [2.0**53 - 1], 5.0)
    assert state.view(GPU).increment_1h(ERRORS)[0] == pytest.approx(1.0)


def test_a_steady_rate_shows_as_the_growth_of_an_hour_and_its_quotient_as_the_rate() -> None:
    state = fleet("a")
    for n in range(3 * 3600 // 5):
        put(state, ["a"], [40.0], [2.0 * n], 5.0 * n)
    view = state.view(GPU)
    hour = float(view.increment_1h(ERRORS)[0])
    assert hour == pytest.approx(0.4 * 3600, rel=0.06)
    assert hour / float(view.coverage_s(ERRORS)[0]) == pytest.approx(0.4, rel=1e-3)
    assert view.ewma_fast(ERRORS)[0] == pytest.approx(0.4, rel=1e-3)


def test_means_follow_their_time_constants_over_irregular_steps() -> None:
    state = fleet("a")
    put(state, ["a"], [0.0], [0.0], 0.0)
    at = 0.0
    for step in (1.0, 13.0, 6.0, 40.0):
        at += step
        put(state, ["a"], [100.0], [0.0], at)
    view = state.view(GPU)
    assert view.ewma_fast(TEMPERATURE)[0] == pytest.approx(100 * (1 - math.exp(-at / FAST_S)), 1e-4)
    assert view.ewma_slow(TEMPERATURE)[0] == pytest.approx(100 * (1 - math.exp(-at / SLOW_S)), 1e-4)
    assert view.variance(TEMPERATURE)[0] > 0.0
    assert view.highest(TEMPERATURE)[0] == 100.0


def test_late_tables_change_nothing_and_are_counted() -> None:
    state = fleet("a", "b")
    put(state, ["a"], [40.0], [1.0], 100.0)
    put(state, ["a", "b"], [90.0, 50.0], [9.0, 1.0], 90.0)
    view = state.view(GPU)
    assert view.last(TEMPERATURE).tolist() == [40.0, 50.0]
    assert state.late_rows == 1


def test_rows_of_unknown_entities_are_skipped() -> None:
    state = fleet("a")
    put(state, ["ghost", "a"], [1.0, 2.0], [0.0, 0.0], 5.0)
    assert state.view(GPU).last(TEMPERATURE).tolist() == [2.0]


def test_two_tables_of_other_columns_at_other_times_do_not_make_each_other_late() -> None:
    state = fleet("a")
    only = schema_for(GPU, [TEMPERATURE])
    put(state, ["a"], [40.0], [1.0], 100.0)
    power = schema_for(GPU, ["gpu_power_watts"])
    rows = state.rows_of(GPU, ["a"])
    empty = np.empty((0, 1))
    state.apply_table(GPU, rows, power, np.array([[300.0]], np.float32), empty, (), 99.0)
    state.apply_table(GPU, rows, only, np.array([[41.0]], np.float32), empty, (), 105.0)
    view = state.view(GPU)
    assert view.last("gpu_power_watts")[0] == 300.0
    assert state.late_rows == 0
    assert view.last_seen_at()[0] == 105.0


def test_events_are_counted_by_group_and_decay() -> None:
    state = fleet("a")
    state.note_event(ref("a"), EventGroup.XID_MEMORY, 0.0, 2)
    state.note_event(ref("a"), EventGroup.XID_MEMORY, 3600.0, 1)
    state.note_event(ref("a"), EventGroup.XID_MEMORY, 0.0, 1)  # told late: decayed since
    view = state.view(GPU)
    assert view.last_event_at(EventGroup.XID_MEMORY)[0] == 3600.0
    assert view.events_1h(EventGroup.XID_MEMORY, 3600.0)[0] == pytest.approx(1 + 3 / math.e)
    assert view.events_1h(EventGroup.XID_MEMORY, 7200.0)[0] == pytest.approx(
        (1 + 3 / math.e) / math.e
    )
    put(state, ["a"], [1.0], [1.0], 7200.0)
    assert view.events_1h(EventGroup.XID_MEMORY)[0] == pytest.approx((1 + 3 / math.e) / math.e)
    assert view.events_24h(EventGroup.XID_BUS)[0] == 0.0


def planes_of(state: FleetState, kind: EntityKind) -> dict[str, object]:
    view = state.view(kind)
    picked: dict[str, object] = {"refs": list(view.refs)}
    for metric in view.metrics:
        for name in (
            "last", "missing_code", "increment_1h", "increment_24h", "ewma_fast", "ewma_slow",
            "variance", "last_change_at", "coverage_s", "highest", "resets",
        ):  # fmt: skip
            picked[f"{metric} {name}"] = getattr(view, name)(metric).tobytes()
        picked[f"{metric} age"] = view.age_s(metric, 1e6).tobytes()
    for group in EventGroup:
        picked[group] = view.events_1h(group, 1e6).tobytes() + view.last_event_at(group).tobytes()
    picked["seen"] = view.last_seen_at().tobytes()
    return picked


readings = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.one_of(st.floats(-50, 150, width=32), st.just(math.nan)),
        st.one_of(st.floats(0, 1e15), st.just(math.nan)),
        st.floats(0.1, 5000.0),
    ),
    max_size=12,
)


@settings(max_examples=40)
@given(readings)
def test_a_restored_state_equals_the_exported_and_goes_on_the_same(
    steps: list[tuple[int, float, float, float]],
) -> None:
    state = FleetState()
    for n in range(4):
        state.register(ref(f"g{n}", f"n{n % 2}"))
    at = 0.0
    for gpu, temperature, errors, step in steps:
        at += step
        put(state, [f"g{gpu}"], [temperature], [errors], at)
        state.note_event(ref(f"g{gpu}", f"n{gpu % 2}"), EventGroup.XID_BUS, at, gpu + 1)
    restored = FleetState()
    restored.import_nodes(state.export_nodes(["n0", "n1", "not-there"]))
    for kind in (GPU, EntityKind.NODE):
        assert planes_of(state, kind) == planes_of(restored, kind)
    for one in (state, restored):
        put(one, ["g0", "g1", "g2", "g3"], [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], at + 60)
    rows = restored.rows_of(GPU, ["g0", "g1", "g2", "g3"])
    before, after = state.view(GPU), restored.view(GPU)
    for name in ("increment_1h", "ewma_slow", "variance", "coverage_s"):
        left = getattr(before, name)(ERRORS)[state.rows_of(GPU, ["g0", "g1", "g2", "g3"])]
        assert np.array_equal(left, getattr(after, name)(ERRORS)[rows], equal_nan=True)


def test_importing_replaces_only_the_nodes_in_it() -> None:
    state = FleetState()
    state.register(ref("a", "n0"))
    state.register(ref("b", "n1"))
    put(state, ["a", "b"], [10.0, 20.0], [1.0, 1.0], 10.0)
    blob = state.export_nodes(["n0"])
    put(state, ["a", "b"], [11.0, 21.0], [2.0, 2.0], 20.0)
    state.import_nodes(blob)
    assert state.view(GPU).last(TEMPERATURE).tolist() == [10.0, 21.0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda blob: b"",
        lambda blob: b"nonsense" * 10,
        lambda blob: blob[:-1],
        lambda blob: blob[:40] + bytes([blob[40] ^ 1]) + blob[41:],
        lambda blob: blob[:4] + b"\x63\x00" + blob[6:],
    ],
)
def test_a_spoilt_checkpoint_is_refused_whole_and_says_what_to_do(spoil: object) -> None:
    state = fleet("a")
    put(state, ["a"], [10.0], [1.0], 10.0)
    blob = spoil(state.export_nodes(["n0"]))  # type: ignore[operator]  # one of the lambdas above
    with pytest.raises(CheckpointError, match="delete this checkpoint"):
        state.import_nodes(blob)
    assert state.view(GPU).last(TEMPERATURE).tolist() == [10.0]


def test_retiring_a_node_closes_the_gap_and_says_so() -> None:
    state = FleetState()
    for n in range(3):
        state.register(ref(f"g{n}", f"n{n}"))
    put(state, ["g0", "g1", "g2"], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], 1.0)
    state.note_event(ref("g2", "n2"), EventGroup.XID_BUS, 1.0, 1)
    state.retire_node("n1")
    state.retire_node("never-seen")
    view = state.view(GPU)
    assert [r.key for r in view.refs] == ["g0", "g2"]
    assert view.last(TEMPERATURE).tolist() == [1.0, 3.0]
    assert view.events_1h(EventGroup.XID_BUS, 1.0).tolist() == [0.0, 1.0]
    assert [state.view(EntityKind.NODE).refs[row].key for row in view.node_rows] == ["n0", "n2"]
    assert state.generation == 1
    row = state.register(ref("g1", "n1"))
    assert np.isnan(state.view(GPU).last(TEMPERATURE)[row])


def test_a_gpu_that_moves_to_another_node_keeps_its_past() -> None:
    state = fleet("a")
    put(state, ["a"], [40.0], [7.0], 100.0)
    state.register(ref("a", "n9"))
    assert state.view(GPU).last(TEMPERATURE)[0] == 40.0
    state.retire_node("n0")
    assert [r.node_id for r in state.view(GPU).refs] == ["n9"]
