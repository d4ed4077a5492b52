from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "history.py"


def test_the_history_benchmark_runs_beside_both_peers() -> None:
    """Small: fixed costs weigh too much for the ratios to mean anything."""
    if not (shutil.which("promtool") and shutil.which("victoria-metrics")):
        pytest.skip("promtool or victoria-metrics is not installed")
    options = "--nodes 1 --hours 0.2 --shape simulated"
    done = subprocess.run(
        [sys.executable, BENCH, *options.split()], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 7]
    assert len(rows) == 2, done.stdout
    ours, prometheus, victoria = map(float, rows[1][2:5])
    assert 0.0 < ours < min(prometheus, victoria), done.stdout
