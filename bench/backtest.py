"""How fast a backtest plays: seconds of the fleet's time a second of processor time.

    .venv/bin/python bench/backtest.py [--nodes 64] [--hours 2] [--profile]

A simulated fleet of 8 GPUs a node at 30 s, its frames decoded beforehand, is played with the model
that ships. Beside it the cost of the windows alone: what no backtest can be cheaper than.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwarden_models.backtest.report import Report
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.frames import Frame
from gpuwarden_models.recording_tables import LabelRow
from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.schedule import random_story
from gpuwarden_models.simulator.simulation import JobView, Setting, Simulation
from gpuwarden_models.simulator.topology import build_topology
from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.fusion import FusionModel, decode_model
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.metrics import EntityKind

WANTED = 1000.0
"""Times real time that 64 nodes must reach."""
_ARTIFACTS = Path(__file__).resolve().parents[1] / "models" / "artifacts" / "gpu"


@dataclass
class Decoded:
    """Frames in memory; a `History`."""

    start: float
    end: float
    interval_s: float
    nodes: tuple[str, ...]
    metrics: Mapping[EntityKind, tuple[str, ...]]
    places: Mapping[str, NodePlace]
    gpus_expected: Mapping[str, int]
    kept: list[Frame]
    jobs: Sequence[JobView] = ()
    labels: Sequence[LabelRow] = ()
    kernel_logs: int = 1
    fleet: Sequence[object] = field(default_factory=list)

    def frames(self) -> Iterator[Frame]:
        """All of them."""
        return iter(self.kept)


def simulated(nodes: int, hours: float, seed: int = 1) -> Decoded:
    """A fleet with random faults, decoded."""
    setting = Setting(nodes, 8, seed, 30.0)
    simulation = Simulation(setting, random_story(build_topology(nodes, 8, seed), hours, seed))
    frames = list(simulation.frames(round(hours * 120)))
    topology = simulation.topology
    return Decoded(
        start=setting.start,
        end=simulation.now,
        interval_s=30.0,
        nodes=topology.nodes,
        metrics={table.kind: table.schema.names for table in frames[0].tables},
        places={
            node: NodePlace(rack, leaf)
            for node, rack, leaf in zip(
                topology.nodes, topology.racks, topology.leaves, strict=True
            )
        },
        gpus_expected=dict.fromkeys(topology.nodes, 8),
        kept=frames,
        jobs=simulation.board_jobs(),
    )


def shipped_model() -> FusionModel:
    """The promoted model."""
    folder = _ARTIFACTS / (_ARTIFACTS / "PROMOTED").read_text(encoding="utf-8").strip()
    return decode_model({path.name: path.read_bytes() for path in folder.iterdir()})


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--profile", action="store_true", help="Print where the time goes.")
    arguments = parser.parse_args()
    history = simulated(arguments.nodes, arguments.hours)
    length = history.end - history.start
    windows_s = _windows_alone(history)
    profile = cProfile.Profile() if arguments.profile else None
    if profile is not None:
        profile.enable()
    report = backtest(history, "simulated", parse_policy(""), shipped_model())
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
