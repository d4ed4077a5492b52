"""Public telemetry of machines that nobody called broken, as histories that a backtest plays.

None of it is shipped: GPUWARDEN_PUBLIC_DATA names its folder; see docs/public-data.md.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_models.recording_tables import JobRow, LabelRow
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.events import Event, EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema, schema_for

FOLDER = Path(os.environ.get("GPUWARDEN_PUBLIC_DATA", "") or "/nonexistent")
H100, ALIBABA, NAB, SNAPSHOT = (
    "h100_workload_telemetry",
    "alibaba_gentd26_pods",
    "nab",
    "dcgm_h100_fleet_snapshot",
)
_MIB = 2.0**20


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Numbers of entities of one kind on a grid of times.

    Attributes:
        schema: Metrics.
        keys: Names over the fleet.
        nodes: Node of each.
        numbers: Shape (times, metrics, entities); NaN where nothing was read.
    """

    schema: Schema
    keys: tuple[str, ...]
    nodes: tuple[str, ...]
    numbers: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PublicHistory:
    """Series of several kinds on one grid; a `History`.

    Attributes:
        name: What it is.
        unit: What its alarms are counted over: "GPU", "pod" or "series".
        start: Epoch seconds.
        interval_s: Time between frames.
        times: Number of frames.
        series: One a kind.
        models: Product name by GPU.
        gpus_expected: GPUs that nodes should have, by node.
    """

    name: str
    unit: str
    start: float
    interval_s: float
    times: int
    series: tuple[Series, ...]
    models: Mapping[str, str] = field(default_factory=dict)
    gpus_expected: Mapping[str, int] = field(default_factory=dict)
    jobs: Sequence[JobRow] = ()
    labels: Sequence[LabelRow] = ()
    kernel_logs: int = 0

    @property
    def end(self) -> float:
        """Epoch seconds of the last frame."""
        return self.start + (self.times - 1) * self.interval_s

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names, sorted."""
        return tuple(sorted({node for series in self.series for node in series.nodes}))

    @property
    def metrics(self) -> Mapping[EntityKind, tuple[str, ...]]:
        """Metrics by kind."""
        return {series.schema.entity_kind: series.schema.names for series in self.series}

    @property
    def places(self) -> Mapping[str, NodePlace]:
        """Nobody says where they stand; a place is where an expected count is told."""
        return {node: NodePlace() for node in self.gpus_expected}

    @property
    def days(self) -> float:
        """Entities times days in which something was read of them."""
        read = sum(
            int((~np.isnan(series.numbers)).any(axis=1).sum())
            for series in self.series
            if series.schema.entity_kind is not EntityKind.NODE or len(self.series) == 1
        )
        return read * self.interval_s / 86_400.0

    def frames(self) -> Iterator[Frame]:
        """One a time; every node's inventory comes with the first."""
        nodes = self.nodes
        place = {node: number for number, node in enumerate(nodes)}
        node_of = [np.array([place[one] for one in series.nodes]) for series in self.series]
        events = self._inventories(nodes)
        for number in range(self.times):
            tables = tuple(
                FrameTable(
                    series.schema,
                    series.keys,
                    series.keys,
                    rows,
                    series.numbers[number],
                    (~np.isnan(series.numbers[number])).any(axis=0),
                )
                for series, rows in zip(self.series, node_of, strict=True)
            )
            at = self.start + number * self.interval_s
            yield Frame(at, nodes, ("",) * len(nodes), tables, events if number == 0 else ())

    def _inventories(self, nodes: Iterable[str]) -> tuple[NodeEvent, ...]:
        held: dict[str, list[GpuIdentity]] = {node: [] for node in nodes}
        for series in self.series:
            if series.schema.entity_kind is EntityKind.GPU:
                for key, node in zip(series.keys, series.nodes, strict=True):
                    model = self.models.get(key, "")
                    held[node].append(GpuIdentity(gpu_uuid=key, pci_bus_id="", model=model))
        return tuple(
            NodeEvent(node, "", _told(node, gpus, self.start)) for node, gpus in held.items()
        )


def _told(node: str, gpus: Sequence[GpuIdentity], at: float) -> Event:
    return Event(
        id=f"public:{node}",
        kind=EventKind.INVENTORY,
        observed_at=at,
        inventory=Inventory(gpus=tuple(gpus)),
    )


def h100_runs() -> list[PublicHistory]:
    """Runs of real programs on nodes of eight H100, once a second."""
    return [
        _h100_run(path) for path in sorted((FOLDER / H100).glob("*_1hz.csv.gz")) if _is_gpu(path)
    ]


_H100_COLUMNS = {
    "power_w": ("gpu_power_watts", 1.0),
    "temp_c": ("gpu_temperature_celsius", 1.0),
    "mem_used_mib": ("gpu_memory_used_bytes", _MIB),
    "mem_total_mib": ("gpu_memory_total_bytes", _MIB),
    "gpu_util_pct": ("gpu_utilization_ratio", 0.01),
    "mem_util_pct": ("gpu_memory_utilization_ratio", 0.01),
    "throttle_reasons": ("gpu_clock_event_reasons", 1.0),
    "energy_mj": ("gpu_energy_joules_total", 1e-3),
}


def _is_gpu(path: Path) -> bool:
    return "_ib_" not in path.name


def _h100_run(path: Path) -> PublicHistory:
    rows = _rows(path)
    run = path.name.removesuffix("_1hz.csv.gz")
    start = min(float(row["timestamp"]) for row in rows)
    seconds = [int(float(row["timestamp"]) - start) for row in rows]
    gpus = sorted({row["gpu"] for row in rows}, key=int)
    schema = schema_for(EntityKind.GPU, [name for name, _ in _H100_COLUMNS.values()])
    factors = {metric: (column, factor) for column, (metric, factor) in _H100_COLUMNS.items()}
    numbers = np.full((max(seconds) + 1, len(schema.names), len(gpus)), np.nan)
    for second, row in zip(seconds, rows, strict=True):
        for place, metric in enumerate(schema.names):
            column, factor = factors[metric]
            if row[column]:
                numbers[second, place, gpus.index(row["gpu"])] = float(row[column]) * factor
    keys = tuple(f"GPU-{run}-{gpu}" for gpu in gpus)
    series = Series(schema, keys, (run,) * len(gpus), numbers)
    models = {f"GPU-{run}-{row['gpu']}": row["gpu_model"] for row in rows}
    return PublicHistory(f"H100 run {run}", "GPU", start, 1.0, len(numbers), (series,), models)


def alibaba_pods(step: int = 1, share: float = 1.0) -> PublicHistory:
    """GPUs of serving pods over a day, every 57 s: duty cycle and memory in use.

    Args:
        step: Every how-manieth time of the grid.
        share: First part of the pods, by their hashes.
    """
    folder = FOLDER / ALIBABA
    duty = _pods(folder / "pod_gpu_duty_cycle_anon.csv.gz")
    memory = _pods(folder / "pod_gpu_memory_used_bytes_anon.csv.gz")
    times = sorted({at for at, _ in duty} | {at for at, _ in memory})[::step]
    pods = sorted({pod for _, pod in duty})
    pods = pods[: max(1, round(len(pods) * share))]
    schema = schema_for(EntityKind.GPU, ["gpu_utilization_ratio", "gpu_memory_used_bytes"])
    numbers = np.full((len(times), 2, len(pods)), np.nan)
    for number, at in enumerate(times):
        for place, pod in enumerate(pods):
            numbers[number, 0, place] = duty.get((at, pod), np.nan) / 100.0
            numbers[number, 1, place] = memory.get((at, pod), np.nan)
    series = Series(schema, tuple(f"GPU-{pod}" for pod in pods), tuple(pods), numbers)
    interval_s = float(np.median(np.diff(times)))
    return PublicHistory("Alibaba pods", "pod", times[0], interval_s, len(times), (series,))


def nab_series(most: int | None = None) -> PublicHistory:
    """Machine metrics of NAB at 5 minutes, all begun at once: a node for each file.

    Utilisation and temperatures are played as those of a GPU, loads and requests as the load of a
    host. Network and disk rates as the counters that they are the growth of.

    Args:
        most: Longest time, in steps; None for all.
    """
    files = sorted((FOLDER / NAB).glob("real*/*.csv"))
    columns = {path.stem: [float(row["value"]) for row in _rows(path)][:most] for path in files}
    longest = max(len(values) for values in columns.values())
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for stem, values in columns.items():
        metric, factor, adds = _nab_meaning(stem)
        line = np.full(longest, np.nan)
        known = np.array(values) * factor
        line[: len(values)] = np.cumsum(known) if adds else known
        found.setdefault(metric, {})[stem] = line
    series = [
        _nab_kind(kind, found)
        for kind in (EntityKind.GPU, EntityKind.NODE, EntityKind.NIC, EntityKind.DISK)
    ]
    start = datetime(2014, 2, 14, tzinfo=UTC).timestamp()
    kept = tuple(one for one in series if one is not None)
    return PublicHistory("NAB", "series", start, 300.0, longest, kept)


def _nab_meaning(stem: str) -> tuple[str, float, bool]:
    """Metric, factor to its unit, and whether the numbers are growth of a counter."""
    if "cpu" in stem:
        return "gpu_utilization_ratio", 0.01, False
    if "temperature" in stem:
        return "gpu_temperature_celsius", 1.0, False
    if "network" in stem.lower() or "NetworkIn" in stem:
        return "nic_received_bytes_total", 1.0, True
    if "disk" in stem:
        return "disk_written_bytes_total", 1.0, True
    return "node_load1", 1.0, False


_NAB_METRICS = {
    EntityKind.GPU: ("gpu_utilization_ratio", "gpu_temperature_celsius"),
    EntityKind.NODE: ("node_load1",),
    EntityKind.NIC: ("nic_received_bytes_total",),
    EntityKind.DISK: ("disk_written_bytes_total",),
}


def _nab_kind(
    kind: EntityKind, found: Mapping[str, Mapping[str, NDArray[np.float64]]]
) -> Series | None:
    lines = [(m, stem, line) for m in _NAB_METRICS[kind] for stem, line in found.get(m, {}).items()]
    if not lines:
        return None
    schema = schema_for(kind, _NAB_METRICS[kind])
    numbers = np.full((len(lines[0][2]), len(schema.names), len(lines)), np.nan)
    for place, (metric, _, line) in enumerate(lines):
        numbers[:, schema.names.index(metric), place] = line
    nodes = tuple(stem for _, stem, _ in lines)
    names = {EntityKind.GPU: "GPU-{}", EntityKind.NODE: "{}", EntityKind.NIC: "{}/eth0"}
    keys = tuple(names.get(kind, "{}/sda").format(node) for node in nodes)
    return Series(schema, keys, nodes, numbers)


_DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_utilization_ratio", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("gpu_memory_utilization_ratio", 0.01),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_watts", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("gpu_temperature_celsius", 1.0),
    "DCGM_FI_DEV_FB_USED": ("gpu_memory_used_bytes", _MIB),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_hertz", 1e6),
    "DCGM_FI_DEV_MEM_CLOCK": ("gpu_memory_clock_hertz", 1e6),
}


def fleet_snapshot(minutes: float = 10.0) -> PublicHistory:
    """One instant of 22 hosts of H100, as constant readings; a host should have as many as most."""
    rows = _rows(FOLDER / SNAPSHOT / "dcgm_snapshot.csv.gz")
    host_of = {row["uuid"]: row["Hostname"] for row in rows}
    gpus = sorted(host_of, key=lambda uuid: (host_of[uuid], uuid))
    schema = schema_for(EntityKind.GPU, [name for name, _ in _DCGM.values()])
    instant = np.full((len(schema.names), len(gpus)), np.nan)
    for row in rows:
        if (known := _DCGM.get(row["metric_name"])) is not None:
            place = schema.names.index(known[0]), gpus.index(row["uuid"])
            instant[place] = float(row["value"]) * known[1]
    interval_s = 15.0
    times = round(minutes * 60 / interval_s) + 1
    hosts = tuple(host_of[uuid] for uuid in gpus)
    series = Series(schema, tuple(gpus), hosts, np.repeat(instant[None], times, axis=0))
    usual = Counter(Counter(hosts).values()).most_common(1)[0][0]
    start = datetime.fromisoformat(rows[0]["timestamp"]).timestamp()
    models = {row["uuid"]: row["modelName"] for row in rows}
    expected = dict.fromkeys(hosts, usual)
    return PublicHistory(
        "fleet snapshot", "GPU", start, interval_s, times, (series,), models, expected
    )


def _pods(path: Path) -> dict[tuple[float, str], float]:
    return {(float(r["timestamp_anon"]), r["pod"]): float(r["value"]) for r in _rows(path)}


def _rows(path: Path) -> list[dict[str, str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", newline="") as packed:
            return list(csv.DictReader(packed))
    with path.open(encoding="utf-8", newline="") as plain:
        return list(csv.DictReader(plain))
