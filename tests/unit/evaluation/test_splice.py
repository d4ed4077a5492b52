"""Real readings stand in for simulated ones, but where something is known to be wrong."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpuwarden_models.evaluation.exclusion.tables import PublicRecordsError
from gpuwarden_models.evaluation.splice import SplicedHistory, read_runs
from gpuwarden_models.frames import Frame
from gpuwarden_models.recording import Recording
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_models.simulate import Variation, simulate
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind

RUNS = ("b1", "e2", "t2", "t3", "t13_node0")
COLUMNS = ("power_w", "temp_c", "gpu_util_pct", "mem_util_pct", "throttle_reasons")


def write_runs(public: Path) -> None:
    folder = public / "h100_workload_telemetry"
    folder.mkdir()
    for run in RUNS:
        with gzip.open(folder / f"{run}_1hz.csv.gz", "wt", newline="") as file:
            table = csv.writer(file)
            table.writerow(["timestamp", "gpu", *COLUMNS])
            for second in range(60):
                for gpu in range(8):
                    table.writerow([1000 + second, gpu, 600 + gpu, 60, 100, "", 4])


def temperatures(frames: Iterator[Frame]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found = [
        table.column("gpu_temperature_celsius")
        for frame in frames
        for table in frame.tables
        if table.kind is EntityKind.GPU
    ]
    return np.array(found)


def test_healthy_gpus_show_real_readings_and_labelled_ones_their_own(tmp_path: Path) -> None:
    write_runs(tmp_path)
    simulate(tmp_path / "r", 2, 8, 0.2, 5, 60.0, variation=Variation(fault_factor=1e-6))
    recording = Recording(tmp_path / "r", (EntityKind.GPU, EntityKind.NODE))
    spliced = SplicedHistory(recording, read_runs(tmp_path), 1)
    real = temperatures(spliced.frames())
    assert np.nanmax(np.abs(real - 60.0)) == 0.0
    assert not np.array_equal(real, temperatures(recording.frames()))
    (table,) = (t for t in next(recording.frames()).tables if t.kind is EntityKind.GPU)
    spliced.labels = [fault(table.keys[0], recording.start, recording.end)]
    kept = temperatures(spliced.frames())[:, 0]
    assert np.array_equal(kept, temperatures(recording.frames())[:, 0], equal_nan=True)


def fault(gpu: str, start: float, end: float) -> LabelRow:
    return LabelRow("gpu", gpu, FaultClass.THERMAL, start, end, True, start)


def test_runs_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(PublicRecordsError, match=r"b1_1hz\.csv\.gz"):
        read_runs(tmp_path)
