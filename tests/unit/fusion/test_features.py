"""Features: peers, drift, silence, and one path for training and serving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_models.frames import Frame, wire_tables
from gpuwarden_models.recording import Recording
from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.context import entity_named
from gpuwarden_verdict.event_groups import group_of
from gpuwarden_verdict.features import FEATURE_NAMES, FEATURES, feature_matrix, schema_hash
from gpuwarden_verdict.peers import FEWEST_PEERS, PeerGroups, excess_over_peers, group_medians
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import record

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
    return matrix[:, FEATURE_NAMES.index(name)]


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
    view = state.view(EntityKind.GPU)
    keys = [ref.key for ref in view.refs]
    order = np.argsort(keys)
    return sorted(keys), feature_matrix(view, now)[order]


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
    # Recorded in other units (MHz, %, MiB), and lost GPUs by kernel line only.
    keys_again, again = by_gpu(replayed.state, simulation.now)
    assert keys_again == keys
    told = [name != "bus_events_24h" for name in FEATURE_NAMES]
    np.testing.assert_allclose(again[:, told], expected[:, told], rtol=1e-4, atol=2e-3)
    assert (expected != 0).any(axis=0).sum() >= 9, "most features were put to the test"


def test_the_schema_hash_is_golden() -> None:
    # Another hash makes every trained model unusable: change it knowingly, and retrain.
    assert schema_hash() == "00a186024c1ea2b3"
    assert all(feature.monotone == 1 for feature in FEATURES)


def test_an_empty_fleet_has_no_rows() -> None:
    matrix = feature_matrix(FleetState().view(EntityKind.GPU), 0.0)
    assert matrix.shape == (0, len(FEATURES)) and matrix.dtype == np.float32


def test_what_was_never_read_stays_missing() -> None:
    state = FleetState()
    state.register(entity_named(EntityKind.GPU, "GPU-1", "n1"))
    matrix = feature_matrix(state.view(EntityKind.GPU), 0.0)
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
    for name in ("temperature_excess_celsius", "temperature_drift_celsius"):
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


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.one_of(st.just(float("nan")), st.floats(-50, 50, width=32))
        ),
        max_size=40,
    )
)
def test_grouped_medians_are_medians(rows: list[tuple[int, float]]) -> None:
    groups = np.array([group for group, _ in rows], dtype=np.int64)
    values = np.array([value for _, value in rows], dtype=np.float64)
    medians = group_medians(values, groups)
    for group in set(groups.tolist()):
        own = values[groups == group]
        own = own[~np.isnan(own)]
        expected = np.median(own) if own.size >= FEWEST_PEERS else np.nan
        got = medians[groups == group]
        assert np.array_equal(got, np.full(got.size, expected), equal_nan=True)


def test_the_smaller_of_two_excesses_counts() -> None:
    values = np.array([50.0, 50, 50, 60, 70, 70, 70, 72])
    node = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    everyone = np.zeros(8, dtype=np.int64)
    groups = PeerGroups(fleet=everyone, node=node, known=np.ones(8, dtype=np.bool_))
    excess = excess_over_peers(values, groups)
    assert excess[7] == 2.0, "hot node: only what stands out in it"
    assert excess[3] == -5.0, "cool node: not even the fleet's usual"
