"""Features: peers, drift, silence, and one path for training and serving."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from gpuwarden_models.frames import Frame, wire_tables
from gpuwarden_models.recording import Recording
from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.event_groups import EventGroup, group_of
from gpuwarden_verdict.features import FEATURE_SETS, feature_table
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.simulated import GPU_FEATURES, record, scene_of

GOLDEN = Path(__file__).parent / "feature_sets.json"
SETTING = Setting(3, 8, seed=31, interval_s=10.0)


def faults(simulation: Simulation) -> tuple[ScriptedFault, ...]:
    gpus = [gpu.gpu_uuid for gpu in simulation.topology.gpus]
    return (
        ScriptedFault(FaultName.SLOW_OVERHEATING, gpus[2], 30.0, ramp_s=60.0),
        ScriptedFault(FaultName.ECC_WEAR, gpus[5], 10.0, ramp_s=100.0),
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[11], 200.0),
        ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0003", 100.0),
        ScriptedFault(FaultName.MISSING_SCRAPES, "gpu-0002", 300.0, duration_s=60.0),
    )


def column(matrix: np.ndarray, name: str) -> np.ndarray:
    return matrix[:, GPU_FEATURES.names.index(name)]


def serve(state: FleetState, frame: Frame) -> None:
    """What ingest does with the bytes of a batch: floats in place, rows by name."""
    schemas = {table.schema.hash: table.schema for table in frame.tables}
    for row, node in enumerate(frame.nodes):
        for table in wire_tables(frame, row):
            schema = schemas[table.schema]
            refs = [entity_named(schema.entity_kind, key, node) for key in table.entities]
            rows = np.array([state.register(ref) for ref in refs], dtype=np.int64)
            f32 = np.frombuffer(table.f32, "<f4").reshape(schema.f32_count, -1)
            f64 = np.frombuffer(table.f64, "<f8").reshape(-1, len(rows))
            kind = schema.entity_kind
            state.apply_table(kind, rows, schema, f32, f64, table.missing, table.observed_at)
    for item in frame.events:
        group = group_of(item.event)
        if group is not None:
            ref = entity_named(item.event.entity_kind, item.event.entity, item.node_id)
            state.note_event(ref, group, item.event.observed_at, item.event.count)


def by_gpu(state: FleetState, now: float) -> tuple[list[str], np.ndarray]:
    """Rows in order of GPU name: the order of first sight is not part of the contract."""
    table = feature_table(EntityKind.GPU, scene_of(state), now)
    keys = [ref.key for ref in table.refs]
    order = np.argsort(keys)
    return sorted(keys), table.matrix[order]


def test_training_and_serving_see_the_same_features(tmp_path: Path) -> None:
    frames, simulation = 60, Simulation(SETTING)
    script = faults(simulation)
    simulation = Simulation(SETTING, script)
    served, trained = FleetState(), Replay()
    for frame in simulation.frames(frames):
        serve(served, frame)
        trained.feed(frame)
    keys, expected = by_gpu(served, simulation.now)
    assert by_gpu(trained.state, simulation.now)[0] == keys
    assert np.array_equal(by_gpu(trained.state, simulation.now)[1], expected, equal_nan=True)

    record(tmp_path, SETTING, frames, script)
    replayed = Replay()
    for frame in Recording(tmp_path).frames():
        replayed.feed(frame)
    # Recorded in other units (MHz, %, MiB), and lost GPUs by kernel line only: of such a GPU
    # nothing is read any more.
    keys_again, again = by_gpu(replayed.state, simulation.now)
    assert keys_again == keys
    told = [not name.startswith("bus_events") for name in GPU_FEATURES.names]
    lost = np.isnan(again) & ~np.isnan(expected)
    assert set(np.flatnonzero(lost.any(axis=1)).tolist()) <= {keys.index(script[2].entity)}
    expected[lost] = np.nan
    np.testing.assert_allclose(again[:, told], expected[:, told], rtol=1e-4, atol=2e-3)
    assert (expected != 0).any(axis=0).sum() >= 9, "most features were put to the test"


def test_the_schemas_are_golden() -> None:
    # Another hash makes every trained model unusable: change it knowingly, and retrain.
    now = {
        kind.value: {"version": one.version, "hash": one.schema_hash, "names": list(one.names)}
        for kind, one in FEATURE_SETS.items()
    }
    assert json.loads(GOLDEN.read_text(encoding="utf-8")) == now


def test_more_of_any_feature_never_lowers_the_risk() -> None:
    for features in FEATURE_SETS.values():
        assert len(set(features.names)) == len(features)
        assert all(feature.monotone == 1 for feature in features.features)
        assert 10 <= len(features.cheap) <= 20


def test_an_empty_fleet_has_no_rows() -> None:
    for kind, features in FEATURE_SETS.items():
        table = feature_table(kind, scene_of(FleetState()), 0.0)
        assert table.matrix.shape == (0, len(features)) and table.matrix.dtype == np.float32
        assert not table.refs


def test_what_was_never_read_stays_missing() -> None:
    state = FleetState()
    state.register(entity_named(EntityKind.GPU, "GPU-0", "n1"))
    state.note_event(entity_named(EntityKind.GPU, "GPU-0", "n1"), EventGroup.XID_BUS, 0.0, 1)
    lone = entity_named(EntityKind.GPU, "GPU-1", "n1")
    schema = schema_for(EntityKind.GPU, ["gpu_power_watts"])
    row = np.array([state.register(lone)])
    watts = np.array([[100.0]], np.float32)
    state.apply_table(EntityKind.GPU, row, schema, watts, np.empty((0, 1)), (), 10.0)
    keys, matrix = by_gpu(state, 10.0)
    assert keys == ["GPU-1"], "only what ever reported has a row"
    for name in ("temperature_excess_celsius", "ecc_corrected_1h", "row_remap_state"):
        assert np.isnan(column(matrix, name)).all(), name


def run(*script: ScriptedFault, frames: int = 60) -> tuple[np.ndarray, Simulation]:
    simulation, replay = Simulation(SETTING, script), Replay()
    for frame in simulation.frames(frames):
        replay.feed(frame)
    return by_gpu(replay.state, simulation.now)[1], simulation


def test_a_rack_that_warms_together_accuses_nobody() -> None:
    calm, _ = run()
    warm, _ = run(ScriptedFault(FaultName.HOT_AISLE, "gpu-0001", 0.0, ramp_s=120.0, severity=1.5))
    for name in ("temperature_excess_celsius", "temperature_rise_celsius"):
        assert np.nanmax(column(warm, name) - column(calm, name)) < 1.0, name


def test_only_the_gpu_that_left_is_silent() -> None:
    gpu = Simulation(SETTING).topology.gpus[11].gpu_uuid
    matrix, simulation = run(ScriptedFault(FaultName.GPU_OFF_BUS, gpu, 100.0))
    silent = np.flatnonzero(column(matrix, "silence_seconds") > 0)
    keys = sorted(part.gpu_uuid for part in simulation.topology.gpus)
    assert [keys[row] for row in silent.tolist()] == [gpu]


def test_a_node_that_is_silent_as_a_whole_accuses_no_gpu() -> None:
    matrix, _ = run(ScriptedFault(FaultName.MISSING_SCRAPES, "gpu-0002", 100.0))
    assert column(matrix, "silence_seconds").max() == 0.0


def test_a_repair_takes_counted_errors_away() -> None:
    gpu = Simulation(SETTING).topology.gpus[5].gpu_uuid
    worn = ScriptedFault(FaultName.ECC_WEAR, gpu, 10.0, ramp_s=100.0)
    matrix, _ = run(worn)
    assert column(matrix, "memory_events_24h").max() > 1
    assert column(matrix, "ecc_uncorrected_24h").max() > 0
    repaired = ScriptedFault(FaultName.ECC_WEAR, gpu, 10.0, ramp_s=100.0, duration_s=400.0)
    matrix, _ = run(repaired)
    for name in ("memory_events_24h", "ecc_uncorrected_24h", "row_remap_state"):
        assert column(matrix, name).max() == 0.0, name


def told(kind: EntityKind, keys: list[str], **metrics: list[float]) -> FleetState:
    """A fleet of one node, its entities read once; NaN is a reading that did not come."""
    state = FleetState()
    rows = np.array([state.register(entity_named(kind, key, "n1")) for key in keys])
    schema = schema_for(kind, list(metrics))
    values = np.array([metrics[column.name] for column in schema.columns])
    gauges, counters = values[: schema.f32_count], values[schema.f32_count :]
    state.apply_table(kind, rows, schema, gauges.astype(np.float32), counters, (), 10.0)
    return state


def test_a_node_is_missed_the_gpus_that_it_should_show() -> None:
    state = told(EntityKind.NODE, ["n1"], node_gpus_expected=[8.0], node_gpus_visible=[7.0])
    table = feature_table(EntityKind.NODE, scene_of(state), 10.0)
    values = dict(zip(FEATURE_SETS[EntityKind.NODE].names, table.matrix[0].tolist(), strict=True))
    assert values["gpus_missing"] == 1.0
    assert np.isnan(values["interrupts_deficit_ratio"]), "never read, so not known"


def test_a_port_is_down_only_where_it_says_so() -> None:
    state = told(EntityKind.NIC, ["a", "b", "c"], nic_port_state=[4.0, 1.0, float("nan")])
    table = feature_table(EntityKind.NIC, scene_of(state), 10.0)
    down = table.matrix[:, FEATURE_SETS[EntityKind.NIC].names.index("port_down")]
    assert down[:2].tolist() == [0.0, 1.0] and np.isnan(down[2])
