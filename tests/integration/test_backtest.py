"""`gpuwarden backtest`: the same flags from each form of a recording, scored, shown, refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from gpuwarden_models.simulator.metrics_writers import Form
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from tests.builders.feed import get, quick_settings
from tests.builders.recordings import PROMETHEUS, PROMTOOL, prometheus_with
from tests.builders.server import Feeder, Running, make_gpu, running_server
from tests.builders.simulated import record

pytestmark = pytest.mark.serial
SETTING = Setting(4, 4, seed=9, interval_s=30.0)
FRAMES = 100
Flags = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lost GPU, a port that is down, a program that crashes and scrapes that are missing."""
    folder = tmp_path_factory.mktemp("backtest")
    faults = (
        ScriptedFault(FaultName.GPU_OFF_BUS, lost(), 1200.0, duration_s=900.0),
        ScriptedFault(FaultName.NIC_PORT_DOWN, "gpu-0003/mlx5_1/1", 900.0, duration_s=900.0),
        ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0001", 600.0, duration_s=60.0),
        ScriptedFault(FaultName.MISSING_SCRAPES, "gpu-0004", 1500.0, duration_s=300.0),
    )
    for form in (Form.PARQUET, Form.OPENMETRICS):
        record(folder / form, SETTING, FRAMES, faults, form)
    return folder


def lost() -> str:
    return Simulation(SETTING).topology.gpus[5].gpu_uuid


def answer(folder: Path, *words: str) -> dict[str, Any]:
    file = folder / "answer.json"
    assert run(["backtest", *words, "--json", str(file)]) == ExitCode.DONE
    told: dict[str, Any] = json.loads(file.read_text())
    return told


@pytest.fixture(scope="module")
def told(folder: Path) -> dict[str, Any]:
    """What it says of the Parquet form."""
    page = ["--html", str(folder / "answer.html")]
    return answer(folder, str(folder / Form.PARQUET), *page)


def test_faults_are_flagged_as_labelled_and_nothing_else(told: dict[str, Any]) -> None:
    flags: Flags = told["flags"]
    excluded = {f["entity"]: f for f in flags if f["rung"] != "suspect"}
    assert excluded.keys() == {lost(), "gpu-0003/mlx5_1"}
    gpu = excluded[lost()]
    assert (gpu["entity_kind"], gpu["node"], gpu["fault_class"]) == ("gpu", "gpu-0002", "bus")
    assert "79" in gpu["reasons"][0] and gpu["rung_gated"] == gpu["rung"]
    start = told["recording"]["start"]
    assert 1200.0 <= gpu["first_flagged_at"] - start <= 1260.0
    assert gpu["first_flagged_at"] <= gpu["first_excluded_at"] <= gpu["last_flagged_at"]
    scores = told["scores"]
    assert scores["recall"] == 1.0
    assert scores["false_alarms"]["count"] == scores["false_exclusions"]["count"] == 0
    assert scores["confounders"] >= 2 and scores["confounders_excluded"] == 0
    assert scores["by_class"]["bus"]["flagged"] == scores["by_class"]["nic"]["flagged"] == 1
    assert scores["by_class"]["bus"]["healthy_flagged"] == 0
    assert told["blind_planes"] == []
    assert told["policy"]["mode"] == "act" and told["model"]["version"]


def test_the_text_form_gives_the_same_flags(folder: Path, told: dict[str, Any]) -> None:
    assert answer(folder, str(folder / Form.OPENMETRICS))["flags"] == told["flags"]


def test_a_prometheus_with_that_history_gives_the_same_flags(
    folder: Path, told: dict[str, Any]
) -> None:
    if not (PROMETHEUS and PROMTOOL):
        pytest.skip("prometheus and promtool are not on PATH")
    played, home = told["recording"], folder / Form.OPENMETRICS
    beside = ("--kernel-logs", str(home / "kernel"), "--jobs", str(home / "jobs.csv"))
    with prometheus_with(home, folder) as url:
        url = url.replace("//", "//ann:secret@")
        words = ("--start", str(played["start"]), "--end", str(played["end"]))
        asked = answer(folder, "--prometheus", url, *words, *beside, "--fleet", f"{home}/fleet.csv")
    assert asked["flags"] == told["flags"]
    assert "secret" not in json.dumps(asked)
    assert "scores" not in asked, "a Prometheus has no labels"


def test_the_report_is_one_file_that_asks_for_nothing(folder: Path, told: dict[str, Any]) -> None:
    page = (folder / "answer.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("<svg") == 2
    assert not re.search(r"(src|href)=|@import|url\(|<script|https?://", page)
    for flag in told["flags"]:
        assert flag["entity"] in page
    assert "Against the labels" in page and "Every plane had readings" in page


def test_what_cannot_be_seen_is_named(folder: Path, tmp_path: Path) -> None:
    """Only node_exporter, and nothing beside it."""
    bare = tmp_path / "bare"
    (bare / "metrics").mkdir(parents=True)
    shutil.copy(folder / Form.PARQUET / "metrics" / "node-000.parquet", bare / "metrics")
    page = tmp_path / "answer.html"
    told = answer(tmp_path, str(bare), "--rules-alone", "--html", str(page))
    assert "node_mountstats_nfs_*" in page.read_text()
    assert told["model"]["version"] is None
    assert {"kernel_log", "jobs", "places", "memory_errors", "nic"} <= set(told["blind_planes"])
    assert "host" not in told["blind_planes"]
    assert told["blind_planes_why"].keys() == set(told["blind_planes"])
    assert "scores" not in told and told["recording"]["gpus"] == 0


def test_wrong_use_says_what_to_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*words: str) -> str:
        assert run(["backtest", *words]) == ExitCode.USAGE
        return capsys.readouterr().err

    home = str(folder / Form.PARQUET)
    assert "--prometheus URL" in refused()
    assert "--prometheus URL" in refused(home, "--prometheus", "http://localhost:9090")
    assert "go with --prometheus" in refused(home, "--start", "0")
    assert "needs --start" in refused("--prometheus", "http://localhost:9090")
    assert "is no time" in refused("--prometheus", "http://localhost:9090", "--start", "noon")
    assert "no such folder" in refused(str(tmp_path / "nowhere"))
    assert "--rules-alone" in refused(home, "--model", str(tmp_path))
    (tmp_path / "policy.toml").write_text("[defaults]\nmode = 'maybe'\n")
    assert "policy.toml" in refused(home, "--policy", str(tmp_path / "policy.toml"))
    (tmp_path / "metrics").mkdir()
    (tmp_path / "metrics" / "gpu-000.parquet").write_bytes(b"PAR1 nothing")
    assert "gpu-000.parquet" in refused(str(tmp_path))


def test_it_is_recorded_at_the_server_as_a_trial_that_the_gate_goes_by(
    folder: Path,
    tmp_path: Path,
    told: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a fleet's own: no simulator made it, and its GPUs report to the server."""
    home = tmp_path / "own"
    shutil.copytree(folder / Form.PARQUET, home)
    described = json.loads((home / "recording.json").read_text())
    (home / "recording.json").write_text(json.dumps({**described, "origin": "ours"}))
    with running_server(quick_settings(tmp_path)) as server:
        key = tmp_path / "key"
        key.write_text(server.mint("operator"))
        at = ["--url", server.url, "--key-file", str(key)]
        play = ["backtest", str(home), "--record"]
        assert run([*at, "backtest", str(folder / Form.PARQUET), "--record"]) == ExitCode.USAGE
        assert "is simulated" in capsys.readouterr().err
        assert run([*at, *play, "--keep-caps"]) == ExitCode.USAGE
        assert "held back would not count" in capsys.readouterr().err
        assert run([*at, *play]) != ExitCode.DONE
        assert "not known here" in capsys.readouterr().err
        introduce(server)
        assert run([*at, *play]) == ExitCode.DONE
        assert run([*at, *play, "--rules-alone"]) == ExitCode.USAGE
        (score,) = [one for one in get(server, "/v1/shadow")["items"] if one["kind"] == "gpu"]
        (trial,) = [one for one in score["trials"] if one["trial"] == "backtest"]
    wrong = told["scores"]["false_exclusions"]
    assert (trial["version"], trial["false_actions"]) == (score["version"], wrong["count"])
    assert trial["healthy_days"] == pytest.approx(wrong["gpu_days"])
    assert trial["exclude_confidence"] == told["policy"]["exclude_confidence"] == 0.8


def introduce(server: Running) -> None:
    """The recorded fleet's GPUs report to the server."""
    topology = Simulation(SETTING).topology
    for row, node in enumerate(topology.nodes):
        agent = Feeder(server, server.mint("agent", node), node)
        own = [gpu.gpu_uuid for gpu in topology.gpus if gpu.node == row]
        agent.introduce([make_gpu(n, node, gpu_uuid=uuid) for n, uuid in enumerate(own)])
        agent.close()
