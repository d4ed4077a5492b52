from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.fakes.waiting import wait_for

BENCH = Path(__file__).resolve().parents[2] / "bench" / "ingest.py"


def test_the_ingest_benchmark_runs_and_every_batch_is_acknowledged() -> None:
    """Small: the figures of this run mean nothing, that there are some does."""
    options = "--nodes 4 --intervals 0.5 --seconds 2 --repeats 1 --loop-seconds 0.5 --no-vm"
    done = subprocess.run(
        [sys.executable, BENCH, *options.split()], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split("|") for line in done.stdout.splitlines() if line.count("|") == 9]
    assert len(rows) == 2, done.stdout
    assert rows[1][2].strip() == "100.00%", done.stdout
    assert "batches per CPU-second: server" in done.stdout
    assert "server restores 4 nodes" in done.stdout


def test_who_ends_the_ingest_benchmark_ends_all_that_it_started() -> None:
    options = "--nodes 2 --intervals 0.5 --seconds 100 --repeats 0"
    bench = subprocess.Popen(
        [sys.executable, BENCH, *options.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert bench.stdout is not None
    line = next(line for line in bench.stdout if "introduced" in line or not line)
    children = Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split()
    bench.terminate()
    rest = bench.communicate(timeout=60)[0]
    assert len(children) == 2, (line, children, rest)  # server and load generator
    assert "Traceback" not in rest
    wait_for(lambda: not any(Path(f"/proc/{one}").exists() for one in children))
