"""Training: from recordings to models that the server's decoder believes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.datasets import Dataset, dataset_of, extract
from gpuwarden_models.export import plain_model
from gpuwarden_models.feature_cache import FeatureCache
from gpuwarden_models.fitting import deal_nodes, fit, scores
from gpuwarden_models.measures import measure
from gpuwarden_models.recording_tables import RecordingError
from gpuwarden_models.simulator.simulation import Setting
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.train import Course, TrainingError, TrainReport, promote, train
from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_verdict.fusion import ModelError, decode_model
from gpuwarden_verdict.fusion.predict import log_odds, probability
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import GPU_FEATURES, record, record_teachable

HOUR_S = 3600.0


@dataclass
class Taught:
    """A recording, its features, and what a short course made of them."""

    recording: Path
    features: Path
    cache: FeatureCache
    dataset: Dataset
    report: TrainReport


def course(seed: int, trees: int = 20) -> Course:
    return Course(seed, horizon_s=HOUR_S, step_s=240.0, trees=trees)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Taught:
    folder = tmp_path_factory.mktemp("teachable")
    record_teachable(folder / "recording")
    cache = extract(folder / "recording", folder / "features", 240.0)
    done = train([folder / "recording"], folder / "models", course(2), cache=folder / "features")
    (report,) = (one for one in done.reports if one.kind is EntityKind.GPU)
    dataset = dataset_of([cache], EntityKind.GPU, HOUR_S)
    return Taught(folder / "recording", folder / "features", cache, dataset, report)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_recording_makes_a_model_that_loads_and_promotes(taught: Taught, tmp_path: Path) -> None:
    report = taught.report
    assert report.folder.parent.name == "gpu" and report.folder.name == report.version
    model = decode_model(files_of(report.folder), EntityKind.GPU)
    assert model.version == report.version and model.horizon_s == HOUR_S
    assert report.simulated and report.held_out.brier_skill > 0.0
    facts = json.loads((report.folder / "metrics.json").read_text())
    assert facts["simulated"] is True and facts["seed"] == 2
    (source,) = facts["trained_on"]["recordings"]
    assert source["digest"] == taught.cache.facts.digest
    card = (report.folder / "card.md").read_text()
    assert "(simulated)" in card and source["digest"][:16] in card
    promote(report.folder.parent, report.version)
    assert (report.folder.parent / "PROMOTED").read_text() == f"{report.version}\n"
    again = train([taught.recording], tmp_path, course(2), [EntityKind.GPU], taught.features)
    same = files_of(again.reports[0].folder) == files_of(report.folder)
    assert same, "equal arguments, equal bytes"


def test_the_exported_model_is_scikit_learns_calibrated_one(taught: Taught) -> None:
    dataset = taught.dataset
    split = deal_nodes(dataset, 1)
    rows = split.train & dataset.usable, split.calibrate & dataset.usable
    calibrated = fit(dataset.matrix, dataset.needed, GPU_FEATURES, *rows, 20)
    rng = np.random.default_rng(2)
    matrix = dataset.matrix[::7].copy()
    matrix[rng.random(matrix.shape) < 0.1] = np.nan
    expected = calibrated.predict_proba(matrix)[:, 1]
    assert np.abs(scores(plain_model(calibrated), matrix) - expected).max() < 1e-9
    assert np.ptp(expected) > 0.3


def test_nodes_are_dealt_out_whole_and_late_rows_train_nothing(taught: Taught) -> None:
    dataset = taught.dataset
    split = deal_nodes(dataset, 5)
    parts = [set(dataset.node[rows].tolist()) for rows in (split.train, split.calibrate)]
    parts.append(set(dataset.node[split.held_out].tolist()))
    assert [len(part) for part in parts] == [12, 4, 4]
    assert len(set.union(*parts)) == 20
    assert dataset.share[split.train].max() < 0.8 < dataset.share[split.held_out].max()


def test_the_same_node_of_two_recordings_is_two(taught: Taught) -> None:
    both = dataset_of([taught.cache, taught.cache], EntityKind.GPU, HOUR_S)
    assert np.unique(both.node).size == 40
    assert len(both.cases) == 2 * len(taught.dataset.cases)
    assert both.needed.sum() == 2 * taught.dataset.needed.sum()


def test_labels_become_rows_with_their_horizon(taught: Taught) -> None:
    dataset = dataset_of([taught.cache], EntityKind.GPU, 1800.0)
    assert dataset.cases and dataset.needed.any() and not dataset.needed.all()
    entities = [case.entity for case in dataset.cases]
    for case in (case for case in dataset.cases if entities.count(case.entity) == 1):
        own = dataset.rows_of(case.entity)
        at, needed, usable = dataset.at[own], dataset.needed[own], dataset.usable[own]
        inside = (at >= case.start - 1800.0) & (at < case.end)
        assert np.array_equal(needed, inside)
        silent = taught.cache.kinds[EntityKind.GPU].silent[own]
        assert not (usable & silent).any(), "what no longer answers teaches nothing"
        assert not (~usable & ~silent & (at < case.precursor_start)).any()
        assert not (~usable & inside & ~silent).any()


def test_features_are_extracted_once_and_of_all_kinds(taught: Taught, tmp_path: Path) -> None:
    for kind, rows in taught.cache.kinds.items():
        assert rows.matrix.shape == (rows.at.size, len(FEATURE_SETS[kind]))
        assert len(rows.refs) > 0 and not np.isnan(rows.matrix).all()
        assert (np.diff(rows.entity) >= 0).all()
    assert set(taught.cache.kinds) == set(FEATURE_SETS)
    (path,) = taught.features.glob("*.npz")
    before = path.stat().st_mtime_ns
    again = extract(taught.recording, taught.features, 240.0)
    assert path.stat().st_mtime_ns == before and again.facts == taught.cache.facts
    assert again.labels == taught.cache.labels
    for kind, rows in taught.cache.kinds.items():
        assert np.array_equal(again.kinds[kind].matrix, rows.matrix, equal_nan=True)
        assert again.kinds[kind].refs == rows.refs
    cut = tmp_path / path.name
    cut.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(RecordingError, match=r"cannot be read.*delete it"):
        extract(taught.recording, tmp_path, 240.0)


def test_an_oracle_flags_every_incident_and_a_mute_does_not(taught: Taught) -> None:
    dataset = taught.dataset
    everything = np.ones(dataset.at.size, dtype=np.bool_)
    truth = dataset.needed.astype(np.float64)
    shows = (
        dataset.needed & ~dataset.traceless
    )  # what it knows earlier stands already, and finds nothing
    oracle = measure(dataset, everything, truth, shows)
    assert oracle.flagged == oracle.incidents > 0 and oracle.false_episodes == 0
    assert oracle.brier == 0.0 and oracle.brier_skill == 1.0
    mute = measure(dataset, everything, np.zeros_like(truth), ~everything)
    assert mute.flagged == 0 and mute.median_lead_s is None and mute.brier_skill < 0.0
    alarmist = measure(dataset, everything, np.ones_like(truth), everything)
    assert alarmist.false_episodes > 0 and alarmist.healthy_days > 0


def test_a_damaged_or_unknown_version_is_not_promoted(taught: Taught, tmp_path: Path) -> None:
    home = tmp_path / "gpu"
    shutil.copytree(taught.report.folder, home / taught.report.version)
    (home / taught.report.version / "model.npz").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.npz"):
        promote(home, taught.report.version)
    with pytest.raises(FileNotFoundError):
        promote(home, "gpu-none")
    assert not (home / "PROMOTED").exists()


def test_a_recording_that_teaches_nothing_is_refused(taught: Taught, tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = record(tmp_path / "few", Setting(3, 2, seed=1, interval_s=60.0), 20, ())
    with pytest.raises(TrainingError, match=r"labels\.csv has no gpu row with action_needed yes"):
        train([tmp_path / "few"], out, course(1))
    gpu = few.topology.gpus[0].gpu_uuid
    fault = ScriptedFault(FaultName.GPU_OFF_BUS, gpu, 300.0)
    record(tmp_path / "few-nodes", few.setting, 20, (fault,))
    with pytest.raises(TrainingError, match="3 nodes, at least 5"):
        train([tmp_path / "few-nodes"], out, course(1))
    record(tmp_path / "few-faults", Setting(8, 2, seed=1, interval_s=60.0), 20, (fault,))
    with pytest.raises(TrainingError, match="need action, at least 20"):
        train([tmp_path / "few-faults"], out, course(1))
    with pytest.raises(TrainingError, match="no nic row"):
        train([tmp_path / "few-faults"], out, course(1), [EntityKind.NIC])
    assert not (out / "gpu").exists()


def test_the_figures_are_those_of_what_will_run(taught: Taught) -> None:
    model = decode_model(files_of(taught.report.folder))
    dataset = taught.dataset
    chance = probability(log_odds(model, dataset.matrix))
    flags = chance >= model.operating_point
    flags &= model.first_stage.suspects(dataset.matrix)
    held_out = deal_nodes(dataset, 2).held_out
    assert measure(dataset, held_out, chance, flags) == taught.report.held_out
