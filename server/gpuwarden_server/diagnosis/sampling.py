"""One look at all running jobs, on the columns that sweeps read too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from gpuwarden_verdict.diagnosis.robust import middle
from gpuwarden_verdict.diagnosis.watching import Sample
from gpuwarden_verdict.diagnosis.window import Floats, Ints
from gpuwarden_verdict.windows import Columns, FleetReading, FleetSnapshot
from gpuwarden_wire.metrics import EntityKind

STALE_S = 180.0
"""A reading older than this says nothing of now."""
_LEAST_READ = 0.5
_HELD_BYTES = 2e9
_USED = 0.05

Steps = Callable[[str, float], float | None]
"""Given a job and epoch seconds, what a step took lately; None where it did not say since then."""


class Snapshots(Protocol):
    """Gives the fleet's columns; the guarded state does."""

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        """The fleet of one moment."""
        ...


class JobSampler:
    """Makes samples; keeps which columns it reads."""

    def __init__(self, state: Snapshots, steps: Steps) -> None:
        """Read from these.

        Args:
            state: Columns of the fleet.
            steps: What jobs tell of their steps.
        """
        self._state = state
        self._steps = steps
        self._columns: Columns = {}

    def look(
        self, jobs: Mapping[str, Sequence[str]], now: float, since: float
    ) -> Mapping[str, Sample]:
        """A sample of each job.

        Args:
            jobs: UUIDs of its GPUs, by job.
            now: Epoch seconds.
            since: Of the look before, epoch seconds.
        """
        seen = self._state.snapshot(self._columns)
        effort, held = _gpus(seen, now)
        moved = {what: _moved(seen, what) for what in ("read", "written")}
        node_rows = seen.view(EntityKind.GPU).node_rows
        found = {}
        for job, gpus in jobs.items():
            rows = seen.rows_of(EntityKind.GPU, gpus)
            rows = rows[rows >= 0]
            nodes = np.unique(node_rows[rows]) if rows.size else rows
            found[job] = Sample(
                at=now,
                effort=_median(effort[rows]),
                read_bytes=_a_node(moved["read"], nodes),
                written_bytes=_a_node(moved["written"], nodes),
                held=bool(rows.size) and bool(np.mean(held[rows]) >= _LEAST_READ),
                step_seconds=self._steps(job, since),
            )
        self._columns = seen.columns_read()
        return found


def _gpus(seen: FleetReading, now: float) -> tuple[Floats, Floats]:
    """Effort of each GPU, NaN where it was not read lately; and whether it has a program."""
    view = seen.view(EntityKind.GPU)
    used = view.ewma_fast("gpu_utilization_ratio").astype(np.float64)
    watts = view.ewma_fast("gpu_power_watts").astype(np.float64)
    limit = view.last("gpu_power_limit_watts").astype(np.float64)
    most = np.where(np.isfinite(limit), limit, view.highest("gpu_power_watts"))
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.where(most > 0, watts / most, np.nan)
        # GPUs that wait in a collective show full utilisation and a third of the draw.
        effort = np.fmin(used, drawn)
        age = np.fmin(view.age_s("gpu_utilization_ratio", now), view.age_s("gpu_power_watts", now))
        effort[~(age <= STALE_S)] = np.nan
        memory = view.last("gpu_memory_used_bytes")
        held = (memory >= _HELD_BYTES) | (used >= _USED)
    return effort, held.astype(np.float64)


def _moved(seen: FleetReading, what: str) -> Floats:
    """Bytes a second of each node's mounts and disks; what was not read counts as nothing."""
    moved = np.zeros(len(seen.view(EntityKind.NODE)))
    for kind, name in ((EntityKind.MOUNT, "mount"), (EntityKind.DISK, "disk")):
        view = seen.view(kind)
        if len(view):
            rate = np.nan_to_num(view.ewma_fast(f"{name}_{what}_bytes_total").astype(np.float64))
            rows = view.node_rows
            known = (rows >= 0) & (rows < moved.size)
            np.add.at(moved, rows[known], rate[known])
    return moved


def _a_node(moved: Floats, nodes: Ints) -> float:
    known = nodes[(nodes >= 0) & (nodes < moved.size)]
    return float(moved[known].mean()) if known.size else 0.0


def _median(effort: Floats) -> float:
    """NaN where too few were read: own trouble is no slowness of a job."""
    if not effort.size or np.isfinite(effort).mean() < _LEAST_READ:
        return float("nan")
    return float(middle(effort[:, None], 0)[0])
