"""The built wheel, beside what its metadata names and nothing else, in an empty folder."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nvml import l40s_node
from tests.builders.processes import agent_environment, started
from tests.builders.server import wait_until
from tests.builders.wheel import build_wheel, install_wheel

pytestmark = pytest.mark.serial
KEY = "gw_" + "k" * 43


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_bare_wheel_runs_the_agent_with_only_the_agents_dependencies(
    wheel: Path, tmp_path: Path
) -> None:
    programs = install_wheel(wheel, tmp_path / "venv")
    missing = subprocess.run([programs / "python", "-c", "import numpy, fastapi"], check=False)
    answer = _run([programs / "gpuwarden-agent", "once", "--json"], tmp_path / "empty")
    assert missing.returncode != 0
    assert json.loads(answer)["collectors"]


def test_the_wheel_with_extras_serves_and_scores_a_gpu(wheel: Path, tmp_path: Path) -> None:
    programs = install_wheel(wheel, tmp_path / "venv", ["cli", "server"])
    empty = tmp_path / "empty"
    empty.mkdir()
    log = tmp_path / "server.log"
    server = [programs / "gpuwarden", "server", "--port", "0"]
    with started(server, log, {"GPUWARDEN_ADMIN_KEY": KEY}, empty):
        wait_until(lambda: _url(log), "the server says where it listens", 30)
        access = {"GPUWARDEN_URL": _url(log), "GPUWARDEN_KEY": KEY}
        agent = [programs / "gpuwarden-agent", "run"]
        environment = agent_environment(
            tmp_path / "node", _url(log), KEY, "node-1", l40s_node(1), interval_s=0.5
        )
        with started(agent, tmp_path / "agent.log", environment, empty):
            ask = [programs / "gpuwarden", "why", "node-1:0", "--json"]
            wait_until(lambda: _risk(ask, empty, access), "a score of the GPU", 30)
            risk = _risk(ask, empty, access)
    assert risk is not None
    assert 0.0 < risk["probability"] < 0.5
    assert risk["contributions"]


def _url(log: Path) -> str:
    found = re.search(r"http://[\d.]+:\d+", log.read_text() if log.exists() else "")
    return found[0] if found else ""


def _risk(ask: Sequence[object], folder: Path, access: Mapping[str, str]) -> dict[str, Any] | None:
    answer = _run(ask, folder, access, check=False)
    found: dict[str, Any] | None = json.loads(answer).get("risk") if answer else None
    return found


def _run(
    command: Sequence[object],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)} | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout
