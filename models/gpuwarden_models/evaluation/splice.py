"""Readings of real healthy H100 in place of simulated ones: for evaluation only, never shipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.evaluation.exclusion.tables import PublicRecordsError, read_table
from gpuwarden_models.frames import Frame, FrameTable
from gpuwarden_models.recording import Recording
from gpuwarden_models.recording_tables import JobRow, LabelRow
from gpuwarden_verdict.context import NodePlace
from gpuwarden_wire.metrics import EntityKind

FOLDER = "h100_workload_telemetry"
_RUNS = ("b1", "e2", "t2", "t3", "t13_node0")
_COLUMNS = {
    "power_w": ("gpu_power_watts", 1.0),
    "temp_c": ("gpu_temperature_celsius", 1.0),
    "gpu_util_pct": ("gpu_utilization_ratio", 0.01),
    "mem_util_pct": ("gpu_memory_utilization_ratio", 0.01),
    "throttle_reasons": ("gpu_clock_event_reasons", 1.0),
}
_GPUS = 8
_MOST_OFFSET_S = 10


@dataclass(frozen=True, slots=True, eq=False)
class RealRun:
    """One run of a program on a node of eight H100, once a second.

    Attributes:
        name: As its file is called.
        values: Of each column, shape (columns, seconds, 8); NaN where nothing was read.
    """

    name: str
    values: NDArray[np.float64]


def read_runs(public: Path) -> list[RealRun]:
    """All runs.

    Args:
        public: Folder that GPUWARDEN_PUBLIC_DATA names.

    Raises:
        PublicRecordsError: A file is missing or of another form; names it.
    """
    return [_run(public / FOLDER / f"{name}_1hz.csv.gz", name) for name in _RUNS]


class SplicedHistory:
    """A recording whose healthy GPUs show what real ones showed.

    All nodes play the same run at the same time, some seconds apart, and one run follows the other.
    A GPU that a label speaks of, or whose node one speaks of, keeps its simulated readings while
    the label lasts. Jobs stay the simulated ones, so phases of jobs and of readings do not agree.

    Attributes:
        start, end, interval_s, nodes, metrics, jobs, labels, places, gpus_expected, kernel_logs: Of
            the recording.
    """

    def __init__(self, recording: Recording, runs: Sequence[RealRun], seed: int) -> None:
        """Take a recording and real runs.

        Args:
            recording: What is spliced into.
            runs: At least one.
            seed: Of the offsets between nodes.
        """
        self._recording, self._runs = recording, runs
        self.start, self.end, self.interval_s = recording.start, recording.end, recording.interval_s
        self.nodes, self.metrics = recording.nodes, recording.metrics
        self.jobs: Sequence[JobRow] = recording.jobs
        self.labels: Sequence[LabelRow] = recording.labels
        self.places: Mapping[str, NodePlace] = recording.places
        self.gpus_expected = recording.gpus_expected
        self.kernel_logs = recording.kernel_logs
        rng = np.random.default_rng(seed)
        self._offset = rng.integers(0, _MOST_OFFSET_S, len(recording.nodes))
        self._lengths = np.cumsum([run.values.shape[1] for run in runs])

    def frames(self) -> Iterator[Frame]:
        """The recording's frames with real readings in them."""
        for frame in self._recording.frames():
            tables = tuple(
                self._spliced(frame, table) if table.kind is EntityKind.GPU else table
                for table in frame.tables
            )
            yield replace(frame, tables=tables)

    def _spliced(self, frame: Frame, table: FrameTable) -> FrameTable:
        second = int(frame.at - self.start) % int(self._lengths[-1])
        run = int(np.searchsorted(self._lengths, second, side="right"))
        within = second - (int(self._lengths[run - 1]) if run else 0)
        real = self._runs[run].values
        at = (within + self._offset[table.node_of]) % real.shape[1]
        first = np.searchsorted(table.node_of, table.node_of)
        slot = (np.arange(table.node_of.size) - first) % _GPUS
        healthy = table.reported & ~self._labelled(frame, table)
        values = table.values.copy()
        names = [column.name for column in table.schema.columns]
        for place, (metric, _) in enumerate(_COLUMNS.values()):
            if metric in names:
                shown = real[place, at, slot]
                row = names.index(metric)
                values[row] = np.where(healthy & ~np.isnan(shown), shown, values[row])
        return replace(table, values=values)

    def _labelled(self, frame: Frame, table: FrameTable) -> NDArray[np.bool_]:
        told = {
            row.entity
            for row in self.labels
            if row.precursor_start <= frame.at <= row.end and row.entity_kind in ("gpu", "node")
        }
        nodes = np.array([node in told for node in frame.nodes])
        own = np.array([key in told for key in table.keys])
        found: NDArray[np.bool_] = own | nodes[table.node_of]
        return found


def _run(path: Path, name: str) -> RealRun:
    rows = read_table(path, ("timestamp", "gpu", *_COLUMNS))
    if not rows:
        raise PublicRecordsError(f"{path}: no rows; fetch it again")
    start = min(float(row["timestamp"]) for row in rows)
    last = max(int(float(row["timestamp"]) - start) for row in rows)
    values = np.full((len(_COLUMNS), last + 1, _GPUS), np.nan)
    for row in rows:
        second, gpu = int(float(row["timestamp"]) - start), int(row["gpu"])
        for place, (column, (_, factor)) in enumerate(_COLUMNS.items()):
            if row[column]:
                values[place, second, gpu % _GPUS] = float(row[column]) * factor
    return RealRun(name, values)
