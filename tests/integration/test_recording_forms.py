"""A recording as Parquet, as OpenMetrics and in a real Prometheus: the same frames each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.names import KEY_COLUMNS
from gpuwarden_models.recording import History, Recording, RecordingError, read_tables
from gpuwarden_models.recording_prometheus import read_prometheus, tables_beside
from gpuwarden_models.simulator.metrics_writers import Form
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.recordings import (
    PROMETHEUS,
    PROMTOOL,
    assert_same_frames,
    prometheus_with,
)
from tests.builders.simulated import record, shipped_models

pytestmark = pytest.mark.serial
ALL_KINDS = tuple(KEY_COLUMNS)
SETTING = Setting(3, 2, seed=9, interval_s=15.0)
FRAMES = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both forms in folders of their own."""
    folder = tmp_path_factory.mktemp("forms")
    gpus = [gpu.gpu_uuid for gpu in Simulation(SETTING).topology.gpus]
    faults = (
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[3], 100.0, duration_s=200.0),
        ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0001", 60.0, duration_s=60.0),
        ScriptedFault(FaultName.MISSING_SCRAPES, "gpu-0003", 300.0, duration_s=150.0),
    )
    for form in (Form.PARQUET, Form.OPENMETRICS):
        record(folder / form, SETTING, FRAMES, faults, form)
    return folder


@pytest.fixture(scope="module")
def prometheus(folder: Path) -> Iterator[str]:
    if not (PROMETHEUS and PROMTOOL):
        pytest.skip("prometheus and promtool are not on PATH")
    with prometheus_with(folder / Form.OPENMETRICS, folder) as url:
        yield url


def test_both_forms_give_the_same_frames(folder: Path) -> None:
    wide, text = (Recording(folder / form, ALL_KINDS) for form in (Form.PARQUET, Form.OPENMETRICS))
    assert (wide.start, wide.end, wide.interval_s) == (text.start, text.end, text.interval_s)
    frames = list(wide.frames())
    assert len(frames) == FRAMES and frames[-1].tables[0].reported.any()
    assert_same_frames(frames, list(text.frames()))
    assert_same_frames(frames, list(wide.frames()))


def test_a_prometheus_with_that_history_gives_the_same_frames(
    folder: Path, prometheus: str
) -> None:
    wide = Recording(folder / Form.PARQUET, ALL_KINDS)
    tables = read_tables(folder / Form.PARQUET)
    asked = read_prometheus(prometheus, wide.start, wide.end, tables)
    assert asked.interval_s == wide.interval_s, "the usual time between scrapes"
    assert_same_frames(list(wide.frames()), list(asked.frames()))


def test_a_backtest_flags_the_same_three_times(folder: Path, prometheus: str) -> None:
    wide = Recording(folder / Form.PARQUET, ALL_KINDS)
    tables = read_tables(folder / Form.PARQUET)

    def flags(history: History) -> tuple[Flag, ...]:
        return tuple(backtest(history, "played", parse_policy(""), shipped_models()).flags)

    first = flags(wide)
    assert {flag.fault_class for flag in first if flag.first_excluded_at} == {FaultClass.BUS}
    assert flags(Recording(folder / Form.OPENMETRICS, ALL_KINDS)) == first
    assert flags(read_prometheus(prometheus, wide.start, wide.end, tables)) == first


def test_a_prometheus_is_read_in_the_stretch_that_was_asked_for(
    folder: Path, prometheus: str
) -> None:
    wide = Recording(folder / Form.PARQUET)
    asked = read_prometheus(
        prometheus, wide.start + 60, wide.start + 120, tables_beside(None, None, None)
    )
    assert [frame.at - wide.start for frame in asked.frames()] == [60, 75, 90, 105, 120]
    with pytest.raises(RecordingError, match=r"no series from .* names its node"):
        read_prometheus(prometheus, 1e9, 1e9 + 60, tables_beside(None, None, None))
    with pytest.raises(RecordingError, match="not after the start"):
        read_prometheus(prometheus, 100.0, 100.0, tables_beside(None, None, None))


def test_a_wrong_address_says_so_and_keeps_the_password(folder: Path, prometheus: str) -> None:
    def refused(url: str) -> str:
        with pytest.raises(RecordingError) as error:
            read_prometheus(url, 0.0, 60.0, tables_beside(None, None, None))
        return str(error.value)

    assert "is it the address of a Prometheus" in refused("http://ann:secret@127.0.0.1:1")
    assert "secret" not in refused("http://ann:secret@127.0.0.1:1")
    assert "404" in refused(f"{prometheus}/elsewhere")
    assert "http://HOST:9090" in refused("ftp://host")


def test_what_is_given_beside_a_prometheus_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"jobs\.csv: no such file"):
        tables_beside(None, tmp_path / "jobs.csv", None)
