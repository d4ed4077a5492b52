"""What a sweep costs beside a plain copy of its readings: `.venv/bin/python bench/sweep.py`.

80,000 GPUs x 60 metrics. Three things in one run, CPU time, medians of `--repeats`:

- a plain copy of the matrix of readings (`numpy.ndarray.copy`);
- peer statistics, median and spread of all 60 metrics within jobs, thousands of them from 8 GPUs
  on: half of the metrics whole numbers, so that ties abound, and one reading in fifty missing.
  Grouping the GPUs is counted too;
- the whole sweep of all detectors over the windows of such a fleet, from the snapshot on, each
  sweep a minute after the last so that slow changes are followed every time.

Then the sweep over an eighth, a quarter and a half of the fleet: it should grow with the fleet and
no faster. Ends with 1 where peer statistics cost more than 40 copies, the sweep more than 400 or
more than its interval of 5 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import median

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import SWEEP_DETECTORS, SweepDetector, detect_sweep
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind, MetricKind
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.schema import schema_for

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

METRICS = 60
MISSING = 0.02
MOST_COPIES_PEERS, MOST_COPIES_SWEEP, INTERVAL_S = 40.0, 400.0, 5.0
START = 1_800_000_000.0
LEVELS: dict[str, tuple[float, float]] = {
    "gpu_present": (1.0, 0.0),
    "gpu_temperature_celsius": (60.0, 3.0),
    "gpu_memory_temperature_celsius": (70.0, 3.0),
    "gpu_slowdown_temperature_celsius": (87.0, 0.0),
    "gpu_shutdown_temperature_celsius": (92.0, 0.0),
    "gpu_temperature_margin_celsius": (27.0, 3.0),
    "gpu_power_watts": (650.0, 20.0),
    "gpu_power_limit_watts": (700.0, 0.0),
    "gpu_sm_clock_hertz": (1.9e9, 1e7),
    "gpu_sm_clock_max_hertz": (1.98e9, 0.0),
    "gpu_utilization_ratio": (0.95, 0.01),
    "gpu_memory_utilization_ratio": (0.6, 0.05),
    "gpu_memory_total_bytes": (8e10, 0.0),
    "gpu_pcie_link_generation": (5.0, 0.0),
    "gpu_pcie_link_generation_max": (5.0, 0.0),
    "gpu_pcie_link_width": (16.0, 0.0),
    "gpu_pcie_link_width_max": (16.0, 0.0),
    "gpu_nvlinks_active": (18.0, 0.0),
    "gpu_probe_seconds": (0.02, 0.002),
    "gpu_ecc_mode": (1.0, 0.0),
}
"""Level and spread of what is not 0 on a sound GPU at work."""
_PAST = {"gpu_energy_joules_total": 1e9, "gpu_power_cap_seconds_total": 1e4}
"""Counters that stand at something."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A fleet to sweep over."""

    state: FleetState
    context: FleetContext
    names: list[str]


def main() -> int:
    """Print the tables; 0 where all limits are kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--detectors", action="store_true", help="what each detector costs")
    options = parser.parse_args()
    copy_ms, peers_ms, groups = weigh_peers(options.gpus, options.repeats)
    fleets = [options.gpus // part // 8 * 8 for part in (8, 4, 2, 1)]
    swept = [weigh_sweep(gpus, options.repeats, options.detectors) for gpus in fleets]
    sweep_ms = swept[-1]
    print(f"{options.gpus} GPUs x {METRICS} metrics, {groups} jobs, CPU\n")
    print("| | ms | copies | at most |\n|---|---:|---:|---:|")
    print(f"| plain copy | {copy_ms:.2f} | 1 | |")
    print(
        f"| peer statistics | {peers_ms:.1f} | {peers_ms / copy_ms:.1f} | {MOST_COPIES_PEERS:.0f} |"
    )
    print(
        f"| whole sweep, {len(SWEEP_DETECTORS)} detectors | {sweep_ms:.0f} |"
        f" {sweep_ms / copy_ms:.0f} | {MOST_COPIES_SWEEP:.0f} |"
    )
    print("\n| GPUs | whole sweep, ms | us a GPU |\n|---:|---:|---:|")
    for gpus, spent in zip(fleets, swept, strict=True):
        print(f"| {gpus} | {spent:.0f} | {1e3 * spent / gpus:.2f} |")
    kept = (
        peers_ms <= MOST_COPIES_PEERS * copy_ms
        and sweep_ms <= MOST_COPIES_SWEEP * copy_ms
        and sweep_ms <= INTERVAL_S * 1e3
    )
    return 0 if kept else 1


def weigh_peers(gpus: int, repeats: int) -> tuple[float, float, int]:
    """Milliseconds of a copy and of peer statistics, and how many jobs there were."""
    rng = np.random.default_rng(1)
    matrix = rng.normal(60.0, 5.0, (METRICS, gpus)).astype(np.float32)
    matrix[: METRICS // 2] = np.round(matrix[: METRICS // 2])
    matrix[rng.random(matrix.shape) < MISSING] = np.nan
    jobs = jobs_of(gpus, rng)

    def statistics() -> None:
        grouping = Grouping(jobs, 4)
        for values in matrix:
            middle = grouping.middle(values)
            grouping.per_entity(middle.median)
            grouping.per_entity(middle.spread)

    copy_ms = weigh(matrix.copy, repeats)
    return copy_ms, weigh(statistics, repeats), int(jobs.max()) + 1


def jobs_of(gpus: int, rng: np.random.Generator) -> I64:
    """Job of each GPU, in no order: most jobs have one to four nodes, a few have hundreds."""
    sizes = 8 * np.maximum(1, rng.pareto(1.1, gpus // 8).astype(np.int64) % 1024)
    jobs = np.repeat(np.arange(sizes.size), sizes)[:gpus]
    shuffled: I64 = rng.permutation(jobs)
    return shuffled


def weigh_sweep(gpus: int, repeats: int, by_detector: bool) -> float:
    """Milliseconds of one sweep of all detectors, from the snapshot on."""
    bench = make_fleet(gpus)
    times = (START + 60.0 + 61.0 * number for number in count())

    def sweep() -> None:
        context = FleetContext(
            models=bench.context.models,
            pools=bench.context.pools,
            jobs=bench.context.jobs,
            memory=bench.context.memory,
        )
        at = next(times)
        read_again(bench, at)
        began.append(time.process_time())
        signals = detect_sweep(bench.state.snapshot(), context, at)
        ended.append(time.process_time())
        told.append(len(signals))

    began: list[float] = []
    ended: list[float] = []
    told: list[int] = []
    for _ in range(repeats + 2):
        sweep()
    spent = [1e3 * (end - start) for start, end in zip(began, ended, strict=True)][2:]
    print(f"{gpus} GPUs: {max(told)} signals at most in a sweep", file=sys.stderr)
    if by_detector:
        show_detectors(bench, next(times))
    return median(spent)


def show_detectors(bench: Bench, now: float) -> None:
    """The dearest detectors, each over a snapshot of its own."""

    def alone(detector: SweepDetector) -> Callable[[], object]:
        memory = bench.context.memory
        context = FleetContext(bench.context.models, bench.context.pools, memory=memory)
        return lambda: detector.detect(bench.state.snapshot(), context, now)

    spent = sorted(((weigh(alone(one), 3), one.name) for one in SWEEP_DETECTORS), reverse=True)
    for milliseconds, name in spent[:25]:
        print(f"  {milliseconds:7.2f} ms  {name}", file=sys.stderr)


def make_fleet(gpus: int) -> Bench:
    """A sound fleet at work, with two readings."""
    state = FleetState()
    refs = [
        EntityRef(EntityKind.GPU, f"GPU-{node}-{slot}", f"n{node}")
        for node in range(gpus // 8)
        for slot in range(8)
    ]
    for ref in refs:
        state.register(ref)
    rng = np.random.default_rng(2)
    jobs = jobs_of(gpus, rng)
    context = FleetContext(
        models={ref.key: "NVIDIA H100 80GB HBM3" for ref in refs},
        pools={f"n{node}": f"pool-{node % 4}" for node in range(gpus // 8)},
        jobs={ref.key: f"slurm:{job}" for ref, job in zip(refs, jobs.tolist(), strict=True)},
        memory=SweepMemory(),
    )
    names = [metric.name for metric in metrics_of(EntityKind.GPU)][:METRICS]
    bench = Bench(state, context, names)
    for at in (0.0, 30.0):
        read_again(bench, START + at)
    return bench


def read_again(bench: Bench, at: float) -> None:
    """New readings of all GPUs and nodes at a time."""
    rng = np.random.default_rng(int(at))
    gpus = len(bench.state.view(EntityKind.GPU))
    schema = schema_for(EntityKind.GPU, bench.names)
    columns = []
    counters = {
        metric.name for metric in metrics_of(EntityKind.GPU) if metric.kind is MetricKind.COUNTER
    }
    for column in schema.columns:
        level, spread = LEVELS.get(column.name, (0.0, 0.0))
        if column.name in counters:
            columns.append(np.full(gpus, _PAST.get(column.name, 0.0)))
            continue
        numbers = level + spread * rng.standard_normal(gpus)
        columns.append(np.where(rng.random(gpus) < MISSING, np.nan, np.round(numbers, 3)))
    values = np.array(columns)
    rows = np.arange(gpus)
    split = schema.f32_count
    f32 = values[:split].astype(np.float32)
    bench.state.apply_table(EntityKind.GPU, rows, schema, f32, values[split:], (), at)
    nodes = len(bench.state.view(EntityKind.NODE))
    uptime = schema_for(EntityKind.NODE, ["node_uptime_seconds"])
    up = np.full((1, nodes), at - START + 1e6, np.float32)
    empty = np.empty((0, nodes))
    bench.state.apply_table(EntityKind.NODE, np.arange(nodes), uptime, up, empty, (), at)


def weigh(run: Callable[[], object], repeats: int) -> float:
    """CPU milliseconds of a call, median."""
    run()
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        run()
        spent.append(1e3 * (time.process_time() - began))
    return median(spent)


if __name__ == "__main__":
    sys.exit(main())
