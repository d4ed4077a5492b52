"""How fast the simulator is: `.venv/bin/python bench/simulator.py [--nodes 64] [--hours 2]`.

One fleet of 8 GPUs a node at 30 s with dense faults: frames alone, and written as Parquet. CPU time
of this process beside the time that is simulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuwarden_models.simulate import simulate
from gpuwarden_models.simulator.schedule import random_story
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.topology import build_topology

_INTERVAL_S = 30.0


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--hours", type=float, default=2.0)
    options = parser.parse_args(arguments)
    nodes, hours = options.nodes, options.hours
    frames = round(hours * 3600.0 / _INTERVAL_S)
    print(f"{nodes} nodes, {hours:g} h, {frames} frames (simulated)\n")
    print("| what | CPU s | ms a frame | times real time |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for what, work in (
            ("frames", lambda: _play(nodes, hours, frames)),
            ("a recording", lambda: _write(Path(name) / "played", nodes, hours)),
        ):
            took = _cpu_s(work)
            speed = hours * 3600.0 / took
            print(f"| {what} | {took:.1f} | {1e3 * took / frames:.1f} | {speed:,.0f} |")
    return 0


def _play(nodes: int, hours: float, frames: int) -> None:
    story = random_story(build_topology(nodes, 8, 1), hours, 1)
    for _ in Simulation(Setting(nodes, 8, seed=1, interval_s=_INTERVAL_S), story).frames(frames):
        pass


def _write(folder: Path, nodes: int, hours: float) -> None:
    simulate(folder, nodes, 8, hours, 1, _INTERVAL_S)


def _cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
