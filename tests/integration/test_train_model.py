"""Training: from a recording to a model that the server's decoder believes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.datasets import build_dataset
from gpuwarden_models.export import plain_model
from gpuwarden_models.measures import measure
from gpuwarden_models.recording import Recording
from gpuwarden_models.simulator.simulation import Setting
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.train import TrainingError, deal_nodes, fit, promote, train
from gpuwarden_verdict.fusion import ModelError, decode_model
from gpuwarden_verdict.fusion.predict import log_odds, probability
from gpuwarden_verdict.fusion.trees import trees_from_arrays
from tests.builders.simulated import GPU_FEATURES, record, record_teachable


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teachable") / "recording"
    record_teachable(folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_recording_makes_a_model_that_loads_and_promotes(recording: Path, tmp_path: Path) -> None:
    report = train(recording, tmp_path / "gpu", 2, trees=20)
    assert report.folder == tmp_path / "gpu" / report.version
    model = decode_model(files_of(report.folder))
    assert model.version == report.version and model.horizon_s == 3600.0
    assert report.simulated and report.held_out.brier_skill > 0.0
    facts = json.loads((report.folder / "metrics.json").read_text())
    assert facts["simulated"] is True and facts["seed"] == 2
    assert "(simulated)" in (report.folder / "card.md").read_text()
    promote(tmp_path / "gpu", report.version)
    assert (tmp_path / "gpu" / "PROMOTED").read_text() == f"{report.version}\n"
    again = train(recording, tmp_path / "again", 2, trees=20)
    assert files_of(again.folder) == files_of(report.folder), "equal arguments, equal bytes"


def test_the_exported_model_is_scikit_learns_calibrated_one(recording: Path) -> None:
    dataset = build_dataset(Recording(recording), 3600.0, 120.0)
    calibrated = fit(dataset, deal_nodes(dataset, 1), 20)
    plain = plain_model(calibrated)
    rng = np.random.default_rng(2)
    matrix = dataset.matrix.copy()
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    trees = trees_from_arrays(plain.arrays, matrix.shape[1])
    odds = plain.slope * (plain.baseline + trees.sum_of_leaves(matrix)) + plain.offset
    expected = calibrated.predict_proba(matrix)[:, 1]
    assert np.abs(probability(odds) - expected).max() < 1e-9
    assert np.ptp(expected) > 0.3


def test_nodes_are_dealt_out_whole(recording: Path) -> None:
    dataset = build_dataset(Recording(recording), 3600.0, 300.0)
    split = deal_nodes(dataset, 5)
    parts = [set(dataset.node[rows].tolist()) for rows in (split.train, split.calibrate)]
    parts.append(set(dataset.node[split.held_out].tolist()))
    assert [len(part) for part in parts] == [12, 4, 4]
    assert len(set.union(*parts)) == 20


def test_labels_become_rows_with_their_horizon(recording: Path) -> None:
    opened = Recording(recording)
    dataset = build_dataset(opened, 1800.0, 120.0)
    assert dataset.labels and dataset.needed.any() and not dataset.needed.all()
    keys = [ref.key for ref in dataset.gpus]
    alone = [
        row
        for row in dataset.labels
        if sum(other.entity == row.entity for other in dataset.labels) == 1
    ]
    for label in alone:
        own = dataset.gpu == keys.index(label.entity)
        at, needed, usable = dataset.at[own], dataset.needed[own], dataset.usable[own]
        inside = (at >= label.start - 1800.0) & (at < label.end)
        assert np.array_equal(needed, inside)
        assert not (~usable & (at < label.precursor_start)).any()
        silent = dataset.matrix[own, GPU_FEATURES.names.index("silence_seconds")] > 0
        assert not (usable & silent).any()
        assert not (~usable & inside & ~silent).any()


def test_an_oracle_flags_every_incident_and_a_coin_does_not(recording: Path) -> None:
    dataset = build_dataset(Recording(recording), 3600.0, 120.0)
    everything = np.ones(dataset.gpu.size, dtype=np.bool_)
    truth = dataset.needed.astype(np.float64)
    oracle = measure(dataset, everything, truth)
    assert oracle.flagged == oracle.incidents > 0 and oracle.false_episodes == 0
    assert oracle.brier == 0.0 and oracle.brier_skill == 1.0
    mute = measure(dataset, everything, np.zeros_like(truth))
    assert mute.flagged == 0 and mute.median_lead_s is None and mute.brier_skill < 0.0
    alarmist = measure(dataset, everything, np.ones_like(truth))
    assert alarmist.false_episodes > 0 and alarmist.healthy_gpu_days > 0


def test_a_damaged_or_unknown_version_is_not_promoted(recording: Path, tmp_path: Path) -> None:
    report = train(recording, tmp_path, 1, trees=5)
    (report.folder / "model.npz").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.npz"):
        promote(tmp_path, report.version)
    with pytest.raises(FileNotFoundError):
        promote(tmp_path, "gpu-none")
    assert not (tmp_path / "PROMOTED").exists()


def test_a_recording_that_teaches_nothing_is_refused(recording: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(recording, bare)
    (bare / "labels.csv").unlink()
    with pytest.raises(TrainingError, match=r"labels\.csv: no gpu row with action_needed yes"):
        train(bare, tmp_path / "out", 1)
    few = record(tmp_path / "few", Setting(3, 2, seed=1, interval_s=60.0), 20, ())
    gpu = few.topology.gpus[0].gpu_uuid
    fault = ScriptedFault(FaultName.GPU_OFF_BUS, gpu, 300.0)
    record(tmp_path / "few-nodes", few.setting, 20, (fault,))
    with pytest.raises(TrainingError, match="3 nodes, at least 5"):
        train(tmp_path / "few-nodes", tmp_path / "out", 1)
    record(tmp_path / "few-faults", Setting(8, 2, seed=1, interval_s=60.0), 20, (fault,))
    with pytest.raises(TrainingError, match="need action, at least 20"):
        train(tmp_path / "few-faults", tmp_path / "out", 1)
    assert not (tmp_path / "out").exists()


def test_the_probability_is_what_the_servers_decoder_gives(recording: Path, tmp_path: Path) -> None:
    report = train(recording, tmp_path, 2, trees=20)
    model = decode_model(files_of(report.folder))
    dataset = build_dataset(Recording(recording), 3600.0, 120.0)
    split = deal_nodes(dataset, 2)
    scores = probability(log_odds(model, dataset.matrix))
    assert measure(dataset, split.held_out, scores) == report.held_out
