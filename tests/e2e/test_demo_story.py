"""`gpuwarden demo --once --json`, as `make demo` runs it: the whole story on real clocks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.exits import ExitCode
from tests.fakes.ports import free_port

pytestmark = pytest.mark.serial

STEPS = [
    "quiet",
    "application_burst",
    "standby",
    "gpu_off_bus",
    "row_remap_failure",
    "nic_port_down",
    "overheating",
    "repair",
    "check_passed",
    "return",
    "standby_released",
]


def demo(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuwarden_cli.main", "demo", "--folder", str(folder), *words]
    return subprocess.Popen(
        command,
        cwd=folder.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_story_is_as_told_within_two_minutes(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo(folder, "--once", "--json", "--port", str(free_port())) as process:
        out, err = process.communicate(timeout=115)
    summary: dict[str, Any] = json.loads(out)
    told = {step["name"]: (step["outcome"], step["seen"]) for step in summary["steps"]}
    assert list(told) == STEPS, err
    assert {outcome for outcome, _ in told.values()} == {"as_told"}, told
    assert summary["forbidden"] == []
    assert (summary["outcome"], process.returncode) == ("as_told", 0)
    events = summary["events"]
    assert events["stored"] >= events["acknowledged"] > 100
    assert (summary["nodes"], summary["gpus"]) == (17, 128)
    assert summary["agent"]["kernel_log"]
    assert left_behind(folder) == []


def test_signal_ends_everything_that_the_demo_started(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo(folder, "--port", str(free_port())) as process:
        deadline = time.monotonic() + 60
        while len(left_behind(folder)) < 2:  # server and agent
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == ExitCode.TERMINATED
    assert "Traceback" not in out + err
    assert left_behind(folder) == []


def test_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with demo(tmp_path, "--once", "--json") as process:
        _, err = process.communicate(timeout=30)
    assert process.returncode == ExitCode.USAGE
    assert "--folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with demo(tmp_path / "demo", "--once", "--port", str(port)) as process:
            _, err = process.communicate(timeout=30)
    assert process.returncode == ExitCode.LOCAL
    assert str(port) in err


def left_behind(folder: Path) -> list[str]:
    """Processes whose arguments or environment name a file of the demo's folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        itself = "gpuwarden_cli.main demo" in words
        if str(folder.resolve()) in words + environ.decode(errors="replace") and not itself:
            found.append(words)
    return found
