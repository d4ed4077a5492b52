"""What features cost in a sweep: `.venv/bin/python bench/features.py`.

80,000 GPUs x 60 metrics, a port a GPU, in jobs. CPU time, medians of `--repeats`, all in one run:

- a plain copy of the matrix of readings (`numpy.ndarray.copy`);
- the features of GPUs after the detectors have looked, as the judge asks for them: columns and
  groups of peers that detectors made are there already;
- the same where nobody looked before;
- who is above a limit on any of the cheap ones, as the first stage asks; the features of a hundred
  suspects; those of nodes and of ports.

`--columns` lists the dearest columns. Ends with 1 where the features of GPUs after a sweep cost
more than MOST_MS on this machine and more than MOST_COPIES plain copies: the second holds on a
slower machine too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sweep import START, Bench, make_fleet, read_again
from gpuwarden_verdict.context import FleetContext, NodePlace
from gpuwarden_verdict.detectors import detect_sweep
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.features import (
    FEATURE_SETS,
    FeatureScene,
    above_limits,
    column_of,
    feature_table,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.schema import schema_for

MOST_MS, MOST_COPIES = 150.0, 100.0
METRICS = 60
NOBODY = 1e6
"""A limit that no GPU at work exceeds."""
Ask = Callable[[FeatureScene, float], object]


def main() -> int:
    """Print the table; 0 where the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--columns", action="store_true", help="what each column costs")
    options = parser.parse_args()
    bench = placed(make_fleet(options.gpus // 8 * 8))
    copy_ms = weigh_copy(options.gpus, options.repeats)
    gpu = EntityKind.GPU
    limits = [(place, NOBODY) for place in FEATURE_SETS[gpu].cheap]
    some = np.arange(0, options.gpus, max(1, options.gpus // 100))
    asked: dict[str, tuple[Ask, bool]] = {
        "GPUs, after the detectors": (lambda s, at: feature_table(gpu, s, at), True),
        "GPUs, alone": (lambda s, at: feature_table(gpu, s, at), False),
        "GPUs, above limits on cheap columns": (
            lambda s, at: above_limits(gpu, s, at, limits),
            True,
        ),
        "100 GPUs": (lambda s, at: feature_table(gpu, s, at, some), True),
        "nodes": (lambda s, at: feature_table(EntityKind.NODE, s, at), True),
        "ports": (lambda s, at: feature_table(EntityKind.NIC, s, at), True),
    }
    moments = (START + 60.0 + 61.0 * number for number in count())
    print(f"{options.gpus} GPUs, {len(FEATURE_SETS[gpu])} features, CPU\n")
    print(f"| | ms | copies |\n|---|---:|---:|\n| plain copy | {copy_ms:.2f} | 1 |")
    spent: dict[str, float] = {}
    for name, (ask, swept) in asked.items():
        spent[name] = weigh(bench, ask, moments, options.repeats, swept=swept)
        print(f"| {name} | {spent[name]:.1f} | {spent[name] / copy_ms:.1f} |")
    if options.columns:
        show_columns(bench, next(iter(moments)))
    own = spent["GPUs, after the detectors"]
    return 0 if own <= MOST_MS or own <= MOST_COPIES * copy_ms else 1


def placed(bench: Bench) -> Bench:
    """The same fleet with racks, leaf switches, jobs that began, and ports."""
    nodes = [ref.key for ref in bench.state.view(EntityKind.NODE).refs]
    places = {
        node: NodePlace(rack=f"r{number // 8}", leaf=f"l{number // 32}")
        for number, node in enumerate(nodes)
    }
    began = dict.fromkeys(set(bench.context.jobs.values()), START - 3600.0)
    for node in nodes:
        for port in range(8):
            key = f"{node}/mlx5_{port}/1"
            bench.state.register(EntityRef(EntityKind.NIC, key, node))
    context = replace(bench.context, places=places, jobs_began=began)
    return Bench(bench.state, context, bench.names)


def read_ports(bench: Bench, at: float) -> None:
    """New readings of all ports at a time."""
    count_of = len(bench.state.view(EntityKind.NIC))
    schema = schema_for(EntityKind.NIC, [one.name for one in metrics_of(EntityKind.NIC)])
    f32 = np.ones((schema.f32_count, count_of), np.float32)
    f64 = np.zeros((len(schema.columns) - schema.f32_count, count_of))
    bench.state.apply_table(EntityKind.NIC, np.arange(count_of), schema, f32, f64, (), at)


def weigh(bench: Bench, ask: Ask, moments: Iterator[float], repeats: int, *, swept: bool) -> float:
    """CPU milliseconds of asking, median; each time on a snapshot with readings of its own."""
    spent = []
    for _ in range(repeats + 1):
        at = next(moments)
        read_again(bench, at)
        read_ports(bench, at)
        scene = FeatureScene(bench.state.snapshot(), fresh(bench.context))
        if swept:
            detect_sweep(scene.state, scene.fleet, at)
        began = time.process_time()
        ask(scene, at)
        spent.append(1e3 * (time.process_time() - began))
    return median(spent[1:])


def fresh(context: FleetContext) -> FleetContext:
    """A context of its own for each moment."""
    return replace(context)


def weigh_copy(gpus: int, repeats: int) -> float:
    """CPU milliseconds of a plain copy of the readings."""
    matrix = np.zeros((METRICS, gpus), np.float32)
    spent = []
    for _ in range(repeats + 1):
        began = time.process_time()
        matrix.copy()
        spent.append(1e3 * (time.process_time() - began))
    return median(spent[1:])


def show_columns(bench: Bench, at: float) -> None:
    """The dearest columns of GPUs, each after the detectors."""
    read_again(bench, at)
    scene = FeatureScene(bench.state.snapshot(), fresh(bench.context))
    detect_sweep(scene.state, scene.fleet, at)
    spent = []
    for feature in FEATURE_SETS[EntityKind.GPU].features:
        began = time.process_time()
        column_of(EntityKind.GPU, feature.name, scene, at)
        spent.append((1e3 * (time.process_time() - began), feature.name))
    for milliseconds, name in sorted(spent, reverse=True)[:25]:
        print(f"  {milliseconds:7.2f} ms  {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
