"""`gpuwarden simulate --live`: a simulated fleet that reports to a real server."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwarden_cli.app import run
from gpuwarden_cli.exits import ExitCode
from tests.builders.feed import get, quick_settings
from tests.builders.processes import started
from tests.builders.server import Running, running_server, wait_until

COMMAND = [sys.executable, "-m", "gpuwarden_cli.main", "simulate"]


def test_a_live_fleet_reports_until_it_is_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = quick_settings(tmp_path)
    assert settings.admin_key is not None
    with running_server(settings) as server:
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        monkeypatch.setenv("GPUWARDEN_KEY", settings.admin_key.get_secret_value())
        command = [*COMMAND, "--live", "--nodes", "2", "--interval-s", "0.5"]
        with started(command, tmp_path / "fleet.log") as fleet:
            wait_until(lambda: _gpus(server) == 16, "the server knows the fleet's GPUs", 30)
            fleet.send_signal(signal.SIGTERM)
            assert fleet.wait(15) == ExitCode.DONE


def test_a_key_that_may_not_speak_for_all_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        monkeypatch.setenv("GPUWARDEN_KEY", server.mint("reader"))
        done = subprocess.run([*COMMAND, "--live"], capture_output=True, text=True, check=False)
    assert (done.returncode, "admin key" in done.stderr) == (ExitCode.REFUSED, True)


def test_where_to_must_be_said_once(tmp_path: Path) -> None:
    for words in ([], ["--live", "--out", str(tmp_path)]):
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, "--out" in done.stderr) == (ExitCode.USAGE, True)


def _gpus(server: Running) -> int:
    return sum(len(node["gpus"]) for node in get(server, "/v1/nodes")["items"])


def test_limits_in_force_are_shown_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = quick_settings(tmp_path)
    assert settings.admin_key is not None
    policy = tmp_path / "limits.toml"
    policy.write_text("[detectors.clock_peers]\nlimit = 0.25\n", encoding="utf-8")
    with running_server(settings.model_copy(update={"policy_file": policy})) as server:
        monkeypatch.setenv("GPUWARDEN_URL", server.url)
        monkeypatch.setenv("GPUWARDEN_KEY", settings.admin_key.get_secret_value())
        command = [*COMMAND, "--live", "--nodes", "2", "--interval-s", "0.5"]
        with started(command, tmp_path / "fleet.log"):
            wait_until(lambda: get(server, "/v1/thresholds")["items"], "a sweep over readings", 60)
            wait_until(lambda: _limits(server, "clock_peers"), "a sweep over clocks", 60)
        assert run(["thresholds", "clock_peers"]) == ExitCode.DONE
        assert get(server, "/v1/policy")["detectors"]["clock_peers"][0]["limit"] == 0.25
    (one,) = _told(capsys.readouterr().out)
    assert one.split()[:4] == ["clock_peers", "default/NVIDIA", "H100", "80GB"]
    assert "0.25 ratio" in one
    assert "override" in one


def _limits(server: Running, detector: str) -> list[dict[str, object]]:
    items: list[dict[str, object]] = get(server, "/v1/thresholds", detector=detector)["items"]
    return items


def _told(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("clock_peers")]
