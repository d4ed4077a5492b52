"""schemathesis over the whole OpenAPI document: examples, boundaries, random values, links.

A server that holds nodes, incidents and decisions answers; every check that schemathesis has is on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwarden_server.front import RAW_ROUTES
from gpuwarden_verdict.policy.document import Mode
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until

ROOT = Path(__file__).resolve().parents[2]
NODES = ("gpu-017", "gpu-018", "gpu-019")
FALLEN_OFF = 79
COMMAND = "from schemathesis.cli import schemathesis; schemathesis()"
HOOKS = "tests.fakes.openapi_hooks"


def seed(server: Running) -> None:
    """Something behind every link: nodes, readings, events, incidents, advice that waits."""
    for name in NODES:
        node = Feeder(server, server.mint("agent", name), name)
        node.introduce([make_gpu(number, name) for number in range(2)])
        rows = {f"GPU-{name}-{number}": (61.0, 400.0, 1e9) for number in range(2)}
        table, schema = gpu_table(rows)
        node.telemetry([table], [schema])
        node.events(xid_event(FALLEN_OFF, "0000:10:00.0"))
        node.close()
    wait_until(lambda: len(get(server, "/v1/decisions")["items"]) >= len(NODES), "advice", 20.0)


def fuzz(folder: Path, *options: str) -> str:
    """Run schemathesis against a seeded server; its report."""
    with running_server(quick_settings(folder, Mode.ADVISE)) as server:
        seed(server)
        raw = [part for route in RAW_ROUTES for part in ("--exclude-path", route.path)]
        command = [sys.executable, "-c", COMMAND, "run"]
        command += [f"{server.url}/openapi.json", *raw, *options]
        command += ["--header", f"Authorization: {server.admin.headers['authorization']}"]
        command += ["--checks", "all", "--seed", "1", "--generation-deterministic"]
        command += ["--no-color", "--request-timeout", "20"]
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        report = done.stdout + done.stderr
        assert done.returncode == 0, report[-20_000:]
        assert get(server, "/readyz")["state"] == "ready"
    return report


def test_no_route_fails_or_answers_otherwise_than_it_says(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = fuzz(tmp_path, "--max-examples", "8")
    assert_whole(report, record_property)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_no_route_fails_in_a_long_run(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = fuzz(tmp_path, "--max-examples", "300", "--workers", "2")
    assert_whole(report, record_property)


def assert_whole(report: str, record_property: Callable[[str, object], None]) -> None:
    """All phases ran, over every operation that was selected."""
    found = re.search(r"Selected: (\d+)/(\d+)\n  Tested: (\d+)", report)
    assert found is not None, report
    selected, described, tested = map(int, found.groups())
    assert tested == selected == described - len(RAW_ROUTES)
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅ {phase}" in report, report
    cases = re.search(r"(\d+) generated", report)
    assert cases is not None
    record_property("figure", f"schemathesis: {tested} operations, {cases[1]} cases, no failure")
