"""The second generator: its folders are recordings, its levels those published, no fault leaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from gpuwarden_models.recording import Recording
from gpuwarden_models.second_generator import GENERATOR, write_recording
from gpuwarden_models.second_generator.happenings import play
from gpuwarden_models.second_generator.levels import Readings, quiet, times
from gpuwarden_models.second_generator.parameters import KINDS
from gpuwarden_models.second_generator.plan import (
    GPUS,
    HOUR_S,
    START_S,
    Incident,
    Job,
    as_it_went,
    draw_incidents,
    draw_jobs,
)
from gpuwarden_wire.events import EventKind
from gpuwarden_wire.metrics import EntityKind

SUDDEN = [name for name, kind in KINDS.items() if kind.action and not kind.announced]
ANNOUNCED = [name for name, kind in KINDS.items() if kind.announced]
ONSET_S = START_S + 4.0 * HOUR_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("second") / "recording"
    write_recording(out, 6, 8.0, 4, interval_s=120.0, density=8.0)
    return out


def test_equal_arguments_write_equal_folders(folder: Path, tmp_path: Path) -> None:
    write_recording(tmp_path / "again", 6, 8.0, 4, interval_s=120.0, density=8.0)
    write_recording(tmp_path / "other", 6, 8.0, 5, interval_s=120.0, density=8.0)
    assert _content(folder) == _content(tmp_path / "again")
    assert _content(folder) != _content(tmp_path / "other")


def test_it_is_a_recording_whose_labels_name_what_is_there(folder: Path) -> None:
    recording = Recording(folder, tuple(EntityKind))
    assert (recording.generator, recording.origin) == (GENERATOR, "simulated")
    assert len(recording.parameters_hash) == 64
    first = next(iter(recording.frames()))
    (ports,) = (set(table.keys) for table in first.tables if table.kind is EntityKind.NIC)
    known = {
        "gpu": {row.gpu_uuid for row in recording.fleet},
        "node": set(recording.nodes),
        "nic": {port.rpartition("/")[0] for port in ports},
        "mount": {mount for row in recording.fleet for mount in row.mounts},
        "job": {job.job_id for job in recording.jobs},
    }
    assert {label.mechanism for label in recording.labels} <= set(KINDS)
    for label in recording.labels:
        assert label.entity in known[label.entity_kind], label
        assert (label.precursor_start < label.start) == KINDS[label.mechanism].announced
        assert recording.start <= label.precursor_start <= label.start < label.end


def test_every_kernel_line_is_read_as_an_event(folder: Path) -> None:
    told = sum(len(log.read_text().splitlines()) for log in (folder / "kernel").glob("*.log"))
    events = [one.event for frame in Recording(folder).frames() for one in frame.events]
    assert told > 50
    assert sum(event.kind is EventKind.KERNEL_LOG for event in events) >= told


def test_levels_are_those_published(tmp_path: Path) -> None:
    write_recording(tmp_path / "calm", 6, 24.0, 11, interval_s=120.0, density=0.0)
    table = pq.read_table(tmp_path / "calm" / "metrics" / "gpu.parquet")
    power, heat, use = (
        table[f"DCGM_FI_DEV_{name}"].to_numpy() for name in ("POWER_USAGE", "GPU_TEMP", "GPU_UTIL")
    )
    assert 500 < np.median(power[use > 85]) < 700
    assert 70 < np.median(power[use == 0]) < 120
    uuid = np.array(table["gpu_uuid"].to_pylist())
    joined = [np.corrcoef(power[uuid == one], heat[uuid == one])[0, 1] for one in np.unique(uuid)]
    assert min(joined) > 0.4 and max(joined) < 0.97
    assert max(joined) - min(joined) > 0.02
    assert heat.max() < 85
    assert (tmp_path / "calm" / "labels.csv").read_text().count("\n") == 1


@pytest.mark.parametrize("name", SUDDEN)
def test_a_sudden_fault_leaves_no_trace_before_its_onset(name: str) -> None:
    jobs = draw_jobs(np.random.default_rng(3), 4, 8 * HOUR_S)
    calm, ill = _played(jobs, []), _played(jobs, [_one(name)])
    assert _columns_moved(calm, ill, until_s=ONSET_S) == set()
    assert _columns_moved(calm, ill, until_s=np.inf) != set()
    assert all(at >= ONSET_S for at, _, _ in ill.lines)


@pytest.mark.parametrize("name", ANNOUNCED)
def test_an_announced_fault_shows_before_its_onset_and_not_before_its_label(name: str) -> None:
    jobs = draw_jobs(np.random.default_rng(3), 4, 8 * HOUR_S)
    calm, ill = _played(jobs, []), _played(jobs, [_one(name)])
    assert _columns_moved(calm, ill, until_s=ONSET_S) != set()
    assert _columns_moved(calm, ill, until_s=ONSET_S - 2 * HOUR_S) == set()


@pytest.mark.parametrize("name", [*SUDDEN, *ANNOUNCED])
def test_it_says_from_when_a_fault_shows(name: str) -> None:
    jobs = draw_jobs(np.random.default_rng(3), 4, 8 * HOUR_S)
    went, happened = as_it_went(jobs, [_one(name)])
    calm, ill = _quiet(went), _quiet(went)
    (shown,) = play(ill, happened)
    lines = [at for at, _, _ in ill.lines]
    assert happened[0].announced_at <= shown <= ONSET_S + 120.0
    assert min(lines, default=shown) >= shown
    if shown not in lines:
        assert _columns_moved(calm, ill, until_s=shown + 1.0) != set()


def test_a_fault_that_changes_nothing_never_shows() -> None:
    readings = _quiet([])
    after = float(readings.at[-1]) + 60.0
    one = replace(_one("cooling_step"), announced_at=after, start=after, end=after + HOUR_S)
    assert play(readings, [one]) == [np.inf]


def test_density_scales_how_much_happens() -> None:
    def count(density: float) -> int:
        rng = np.random.default_rng(8)
        return len(draw_incidents(rng, 128, 48 * HOUR_S, density, []))

    assert count(0.0) == 0
    assert 1.5 < count(0.4) / count(0.2) < 2.5


def test_each_class_has_an_announced_and_a_sudden_kind() -> None:
    found = {(kind.fault_class, kind.announced): None for kind in KINDS.values() if kind.action}
    assert set(Counter(fault_class for fault_class, _ in found).values()) == {2}


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="density may be 0"):
        write_recording(tmp_path / "none", 0, 1.0, 1)
    assert not (tmp_path / "none").exists()


def _one(name: str) -> Incident:
    lead = 2 * HOUR_S if KINDS[name].announced else 0.0
    return Incident(
        name, 1, 2, ONSET_S - lead, ONSET_S, ONSET_S + HOUR_S, 5, ONSET_S + 90, ONSET_S + 900,
        nodes=(1,),
    )  # fmt: skip


def _played(jobs: list[Job], incidents: list[Incident]) -> Readings:
    went, happened = as_it_went(jobs, incidents)
    readings = _quiet(went)
    assert readings.gpu["DCGM_FI_DEV_POWER_USAGE"].shape == (4 * GPUS, 240)
    play(readings, happened)
    return readings


def _quiet(jobs: list[Job]) -> Readings:
    return quiet(9, 4, times(8.0, 120.0), 120.0, jobs)


def _columns_moved(calm: Readings, ill: Readings, until_s: float) -> set[str]:
    before = calm.at < until_s
    return {
        name
        for name, column in _arrays(calm).items()
        if not np.array_equal(column[:, before], _arrays(ill)[name][:, before])
    }


def _arrays(readings: Readings) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for one in fields(readings):
        value = getattr(readings, one.name)
        if isinstance(value, dict):
            found |= value
        elif isinstance(value, np.ndarray) and value.ndim == 2:
            found[one.name] = value
    return found


def _content(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
