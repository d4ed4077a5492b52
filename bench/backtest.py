"""How fast a backtest plays: seconds of the fleet's time a second of processor time.

    .venv/bin/python bench/backtest.py [--nodes 64] [--hours 2] [--profile]

A simulated fleet of 8 GPUs a node at 30 s, its frames decoded beforehand, is played with the model
that ships. Beside it the cost of the windows alone: what no backtest can be cheaper than.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwarden_models.backtest.report import Report
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.schedule import random_story
from gpuwarden_models.simulator.simulation import Setting
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.histories import Decoded, simulated
from tests.builders.simulated import shipped_models

WANTED = 1000.0
"""Times real time that 64 nodes must reach."""


def played(nodes: int, hours: float, seed: int = 1) -> Decoded:
    """A fleet with random faults, decoded."""
    story = random_story(build_topology(nodes, 8, seed), hours, seed)
    return simulated(Setting(nodes, 8, seed, 30.0), story, round(hours * 120))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true", help="Print where the time goes.")
    arguments = parser.parse_args()
    history = played(arguments.nodes, arguments.hours)
    length = history.end - history.start
    windows_s = _windows_alone(history)
    profile = cProfile.Profile() if arguments.profile else None
    if profile is not None:
        profile.enable()
    report = backtest(history, "simulated", parse_policy(""), shipped_models())
    if profile is not None:
        profile.disable()
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    _print(report, length, windows_s)


def _windows_alone(history: Decoded) -> float:
    began = time.process_time()
    replay = Replay()
    for frame in history.frames():
        replay.feed(frame)
    return time.process_time() - began


def _print(report: Report, length: float, windows_s: float) -> None:
    played, cpu_s = report.played, report.played.cpu_s
    speed = length / cpu_s
    print(f"{played.nodes} nodes x 8 GPUs, {length / 3600:.1f} h at {played.interval_s:g} s:")
    print(f"  {'frames':<34}{played.frames:>10}")
    print(f"  {'events':<34}{played.events:>10}")
    print(f"  {'flags':<34}{len(report.flags):>10}")
    print(f"  {'processor time, s':<34}{cpu_s:>10.2f}")
    print(f"  {'a frame, ms':<34}{1000 * cpu_s / played.frames:>10.2f}")
    print(f"  {'of these for the windows alone, ms':<34}{1000 * windows_s / played.frames:>10.2f}")
    print(f"  {'times real time':<34}{speed:>10.0f}")
    if played.nodes == 64:
        print(f"  {'wanted':<34}{WANTED:>10.0f}  {'met' if speed >= WANTED else 'MISSED'}")


if __name__ == "__main__":
    main()
