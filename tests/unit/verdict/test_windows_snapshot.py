from __future__ import annotations

import numpy as np

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for

GPU = EntityKind.GPU
HEAT, ERRORS = "gpu_temperature_celsius", "gpu_ecc_corrected_volatile_total"
SCHEMA = schema_for(GPU, [HEAT, ERRORS])


def put(state: FleetState, names: list[str], heat: float, at: float) -> None:
    for name in names:
        state.register(EntityRef(GPU, name, f"node-{name}"))
    rows = state.rows_of(GPU, names)
    ones = np.full((1, len(names)), 1.0)
    state.apply_table(GPU, rows, SCHEMA, (heat * ones).astype(np.float32), ones, (), at)


def test_a_snapshot_keeps_its_entities_and_what_was_read_of_them() -> None:
    state = FleetState()
    put(state, ["a", "b", "c"], 40.0, 1.0)
    seen = state.snapshot()
    seen.read_ahead(GPU, [("last", HEAT)])
    put(state, ["a", "b", "c"], 50.0, 2.0)
    put(state, [f"more-{n}" for n in range(40)], 60.0, 2.0)
    state.apply_table(
        GPU,
        state.rows_of(GPU, ["a"]),
        schema_for(GPU, [HEAT]),
        np.array([[70.0]], np.float32),
        np.empty((0, 1)),
        (),
        3.0,
    )  # splits the lane
    state.retire_node("node-b")
    view = seen.view(GPU)
    assert [ref.key for ref in view.refs] == ["a", "b", "c"]
    assert view.last(HEAT).tolist() == [40.0] * 3
    assert view.coverage_s(ERRORS).shape == (3,)
    assert seen.rows_of(GPU, ["c", "more-1", "nobody"]).tolist() == [2, -1, -1]
    assert {("last", HEAT), ("coverage", ERRORS)} <= set(seen.columns_read()[GPU])
    assert state.view(GPU).last(HEAT)[:2].tolist() == [70.0, 50.0]


def test_some_rows_are_shown_without_the_others() -> None:
    state = FleetState()
    put(state, ["a", "b", "c"], 40.0, 1.0)
    put(state, ["c"], 45.0, 2.0)
    view = state.view(GPU).only(state.rows_of(GPU, ["c", "a"]))
    assert view.last(HEAT).tolist() == [45.0, 40.0]
    assert [ref.key for ref in view.refs] == ["c", "a"]
    assert view.age_s(HEAT, 12.0).tolist() == [10.0, 11.0]
