"""gpuwarden-run and planned leaves: nothing is started that would reach in, what runs is asked."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwarden_runtime.exits import ExitCode
from gpuwarden_runtime.plan_records import PlannedLeave
from tests.fakes.api_server import FakeApi, serve
from tests.fakes.waiting import wait_for
from tests.integration.test_launcher import Launcher, end_of, first_line, shell


def leave(in_s: float, node: str = "n1") -> PlannedLeave:
    now = time.time()
    return PlannedLeave(id=f"pin-{node}-{in_s:g}", node_id=node, at=now + in_s, reason="riser")


@pytest.fixture
def api() -> FakeApi:
    api = FakeApi()
    api.known_nodes.add("n1")
    return api


@pytest.fixture
def launcher(api: FakeApi, tmp_path: Path) -> Iterator[Launcher]:
    with serve(api) as url:
        yield Launcher(tmp_path, url)


def test_what_would_reach_into_a_leave_is_not_started(launcher: Launcher, api: FakeApi) -> None:
    api.plan(leave(1800.0), leave(5.0, "n2"))
    code, out, err = launcher.run("--needs", "3600", *shell("echo up"))
    assert (code, out) == (ExitCode.REFUSED, "")
    assert "n1 leaves at" in err
    assert "riser" in err
    assert launcher.run("--needs", "600", *shell("echo up"))[:2] == (0, "up\n")


def test_what_runs_is_asked_in_time_and_passes_its_code_on(
    launcher: Launcher, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "leave"
    words = ("--leave-signal", "usr1", "--leave-file", str(file), "--leave-notice", "600")
    loop = "trap 'echo saved; exit 75' USR1; echo up; while :; do sleep 0.05; done"
    process = launcher.start(*words, *shell(loop))
    assert first_line(process) == "up"
    api.plan(leave(7200.0))
    api.plan(leave(300.0))
    assert first_line(process) == "saved"
    code, err = end_of(process)
    assert (code, json.loads(file.read_text())["reason"]) == (75, "riser")
    assert "SIGUSR1" in err


def test_a_leave_that_is_taken_back_is_taken_back_here_too(
    launcher: Launcher, api: FakeApi, tmp_path: Path
) -> None:
    file = tmp_path / "leave"
    process = launcher.start("--leave-file", str(file), *shell("echo up; sleep 100"))
    assert first_line(process) == "up"
    api.plan(leave(300.0))
    wait_for(file.exists, what="it is asked")
    api.plan()
    wait_for(lambda: not file.exists(), what="and no more")
    process.terminate()
    assert "leaves at" in end_of(process)[1]
