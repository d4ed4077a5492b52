"""Readings that bench/history.py stores: a synthetic mix, and what the simulator makes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_models.frames import Frame
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_verdict.segments.blocks import NARROW, WIDE, Block, Reason, Row
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.schema import Column, Schema

BEGIN = (time.time() // 7200.0 - 2.0) * 7200.0
"""An even hour, where a block of Prometheus begins; late enough for VictoriaMetrics to keep."""
_LOST = Reason(MissingKind.UNAVAILABLE, "")
AnyArray = npt.NDArray[Any]
Fleet = Mapping[str, list[Block]]
"""Blocks by node."""


def mix(nodes: int, series: int, step_s: float, seconds: float, jitter_s: float) -> Fleet:
    """GPU-like series of each node.

    25 % are constants, 5 % rare counters, 25 % byte counters with random increments, 20 % whole
    temperatures, 5 % stepped clocks, 10 % power with three decimals, 5 % ratios with four, 5 %
    memory.

    Args:
        nodes: How many.
        series: Of each, a multiple of 20.
        step_s: Between readings.
        seconds: In all.
        jitter_s: Most that a reading's time is off the grid; times are whole milliseconds.
    """
    fleet = {}
    for number in range(nodes):
        rng = np.random.default_rng(number)
        count = int(seconds / step_s)
        jitter = np.round(rng.uniform(-jitter_s, jitter_s, count), 3)
        narrow = np.array(list(_gauges(rng, series // 20, count)), np.float32)
        wide = np.array(list(_counters(rng, series // 20, count)))
        columns = [
            Column(f"node_gauge_{n}_bytes", Storage.F32, MetricKind.GAUGE, "bytes")
            for n in range(len(narrow))
        ] + [
            Column(f"node_counter_{n}_total", Storage.COUNTER, MetricKind.COUNTER, "")
            for n in range(len(wide))
        ]
        block = Block(
            kind=EntityKind.NODE,
            columns=tuple(columns),
            rows=(Row(f"node-{number}", ""),),
            times=np.round(BEGIN + step_s * np.arange(count) + jitter, 3),
            planes={NARROW: narrow.T[:, :, None], WIDE: wide.T[:, :, None]},
            why=np.zeros((count, len(columns), 1), np.uint8),
        )
        fleet[f"node-{number}"] = [block]
    return fleet


def _gauges(rng: np.random.Generator, share: int, count: int) -> Iterator[AnyArray]:
    for _ in range(5 * share):
        yield np.full(count, float(rng.integers(0, 1 << 31)))
    for _ in range(4 * share):
        yield np.rint(rng.uniform(40, 80) + np.cumsum(rng.normal(0, 0.4, count)))
    for _ in range(share):
        yield rng.choice([1.98e9, 1.965e9, 1.95e9, 3.45e8], count, p=[0.9, 0.05, 0.04, 0.01])
    for _ in range(2 * share):
        yield np.round(rng.normal(400, 20, count), 3)
    for _ in range(share):
        yield np.round(rng.random(count), 4)
    for _ in range(share):
        yield float(2 << 20) * (rng.integers(0, 4_000) + np.cumsum(rng.random(count) < 0.02))


def _counters(rng: np.random.Generator, share: int, count: int) -> Iterator[AnyArray]:
    for _ in range(share):
        yield rng.integers(0, 1_000) + np.cumsum(rng.random(count) < 0.002).astype(np.float64)
    for _ in range(5 * share):
        most = 1 << int(rng.integers(10, 24))
        yield rng.integers(0, 1 << 40) + np.cumsum(rng.integers(0, most, count)).astype(np.float64)


def simulated(nodes: int, step_s: float, seconds: float) -> Fleet:
    """What the simulator's fleet reads: 8 GPUs a node, its ports, disks and the node itself."""
    simulation = Simulation(Setting(nodes, 8, seed=1, interval_s=step_s, start=BEGIN))
    frames = list(simulation.frames(int(seconds / step_s)))
    fleet: dict[str, list[Block]] = {node: [] for node in frames[0].nodes}
    for place, table in enumerate(frames[0].tables):
        values = np.stack([frame.tables[place].values for frame in frames])
        times = np.array([_time_of(frame) for frame in frames])
        for number, node in enumerate(frames[0].nodes):
            rows = np.flatnonzero(table.node_of == number).tolist()
            if rows and table.schema.columns:
                names = [table.wire_keys[row] for row in rows]
                fleet[node].append(_block(table.schema, node, names, times, values[:, :, rows]))
    return fleet


def _time_of(frame: Frame) -> float:
    return round(frame.at, 3)


def _block(schema: Schema, node: str, names: list[str], times: AnyArray, values: AnyArray) -> Block:
    narrow = schema.f32_count
    missing = ~np.isfinite(values)
    return Block(
        kind=schema.entity_kind,
        columns=schema.columns,
        rows=tuple(Row(node, name) for name in names),
        times=times,
        planes={NARROW: values[:, :narrow].astype(np.float32), WIDE: values[:, narrow:]},
        why=missing.astype(np.uint8),
        reasons=(_LOST,) if missing.any() else (),
    )
