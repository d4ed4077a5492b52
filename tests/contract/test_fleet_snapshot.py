"""One instant of a public H100 fleet, held for ten minutes: who is told, and nobody else.

A regression case and no measure of accuracy: the snapshot has no labels. Its oddities: a host that
shows seven of eight GPUs, and two hosts with GPUs at 100 % utilisation and idle power.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mode

import numpy as np
import pytest

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import detect_sweep
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.signals import Signal
from gpuwarden_verdict.windows import FleetState
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.verdict import START

FOLDER = os.environ.get("GPUWARDEN_PUBLIC_DATA", "")
SNAPSHOT = Path(FOLDER or "/nonexistent") / "dcgm_h100_fleet_snapshot" / "dcgm_snapshot.csv.gz"
pytestmark = pytest.mark.skipif(
    not SNAPSHOT.is_file(),
    reason="GPUWARDEN_PUBLIC_DATA names no folder with dcgm_h100_fleet_snapshot/: not shipped",
)
MINUTES = 10
INTERVAL_S = 30
OURS = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization_ratio", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_utilization_ratio", 0.01),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watts", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("gpu_memory_clock_hertz", 1e6),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", 2.0**20),
}
MODEL = "NVIDIA H100 80GB HBM3"

Fleet = dict[EntityRef, dict[str, float]]


def read_fleet() -> Fleet:
    fleet: Fleet = defaultdict(dict)
    with gzip.open(SNAPSHOT, "rt", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            if row["metric_name"] in OURS:
                name, factor = OURS[row["metric_name"]]
                gpu = EntityRef(EntityKind.GPU, row["uuid"], row["Hostname"])
                fleet[gpu][name] = float(row["value"]) * factor
    return fleet


def tell(
    state: FleetState, refs: list[EntityRef], block: dict[str, list[float]], at: float
) -> None:
    kind = refs[0].kind
    schema = schema_for(kind, list(block))
    f32 = np.array([block[column.name] for column in schema.columns], np.float32)
    rows = state.rows_of(kind, [ref.key for ref in refs])
    state.apply_table(kind, rows, schema, f32, np.empty((0, len(refs))), (), at)


@pytest.fixture(scope="module")
def told() -> list[Signal]:
    fleet = read_fleet()
    gpus = list(fleet)
    counts = Counter(gpu.node_id for gpu in gpus)
    nodes = [EntityRef(EntityKind.NODE, node, node) for node in counts]
    state = FleetState()
    for ref in (*gpus, *nodes):
        state.register(ref)
    names = [name for name, _ in OURS.values()]
    readings = {name: [fleet[gpu][name] for gpu in gpus] for name in names}
    visible = {"node_gpus_visible": [float(counts[node.key]) for node in nodes]}
    for step in range(MINUTES * 60 // INTERVAL_S + 1):
        tell(state, gpus, readings, START + step * INTERVAL_S)
        tell(state, nodes, visible, START + step * INTERVAL_S)
    usual = mode(counts.values())
    context = FleetContext(
        models={gpu.key: MODEL for gpu in gpus},
        gpus_expected={node.key: usual for node in nodes},
    )
    return detect_sweep(state, context, START + MINUTES * 60)


def test_the_host_with_an_absent_gpu_and_those_with_hung_gpus_are_told_and_nobody_else(
    told: list[Signal],
) -> None:
    by_detector = defaultdict(set)
    for signal in told:
        by_detector[signal.detector].add(signal.entity.node_id)
    assert dict(by_detector) == {
        "device_missing": {"gpunode-011"},
        "hung_kernel": {"gpunode-007", "gpunode-030"},
    }


def test_gpus_that_hang_are_named_and_none_of_them_is_to_be_excluded(told: list[Signal]) -> None:
    hung = [signal for signal in told if signal.detector == "hung_kernel"]
    assert Counter(signal.entity.node_id for signal in hung) == {
        "gpunode-007": 5,  # the sixth draws 156 W, which light work does too
        "gpunode-030": 1,  # the second uses its memory at 77 %
    }
    assert all(signal.max_rung is Rung.SUSPECT for signal in hung)
