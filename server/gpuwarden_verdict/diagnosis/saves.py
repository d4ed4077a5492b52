"""Checkpoints of a job: size, duration, throughput, where a request's time goes, what they cost.

A checkpoint is a stretch of the job's save phase. Steps are minutes: how much of its first and last
one it took is told by how much was written in them against the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.phases import JobPhases, Phase, job_phases
from gpuwarden_verdict.diagnosis.robust import one_quantile
from gpuwarden_verdict.diagnosis.window import Flags, Floats, JobSpan, Window
from gpuwarden_wire.metrics import EntityKind

LOCAL = "local disks"
"""Stands for a mount where a checkpoint goes to disks of the nodes."""
_LEAST_SHARE = 0.1
"""Share of what a checkpoint writes, from which a mount took part in it."""
WEEK_S = 7 * 86_400.0
_EDGE = 0.03
"""Share of the fullest step, from which a step belongs to a checkpoint."""
_LEAST_TREND = 6
_LEAST_TREND_S = 3 * 86_400.0


@dataclass(frozen=True, slots=True)
class Save:
    """One checkpoint on one mount.

    Attributes:
        job: "KIND:ID".
        mount: Mount point, or LOCAL.
        begin: Epoch seconds.
        end: The same.
        nodes: Nodes that wrote.
        size_bytes: Written, all nodes together.
        request_s: What a request took, None where not read.
        queue_share: Of it, the wait in the client, 0..1.
        round_trip_share: Of it, the network's and the server's response.
        rest_share: Of it, what the client itself took.
        lost_s: Time that the job lost, seconds: steps by how much less than at work its GPUs did;
            None where they were not read.
    """

    job: str
    mount: str
    begin: float
    end: float
    nodes: int
    size_bytes: float
    request_s: float | None
    queue_share: float | None
    round_trip_share: float | None
    rest_share: float | None
    lost_s: float | None

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return self.end - self.begin

    @property
    def bytes_per_second(self) -> float:
        """Throughput, all nodes together."""
        return self.size_bytes / self.duration_s


@dataclass(frozen=True, slots=True)
class SaveProfile:
    """All checkpoints of a job on a mount.

    Attributes:
        job: "KIND:ID".
        mount: Mount point, or LOCAL.
        count: How many.
        size_bytes: Median.
        duration_s: Median.
        best_bytes_per_second: Of the quickest.
        latest_of_best: Throughput of the latest against it, 0..1.
        queue_share: Median, None where never read.
        round_trip_share: The same.
        rest_share: The same.
        lost_s: In all.
        trend_per_week: Change of throughput in a week as a share of it, None before there are six
            over three days.
    """

    job: str
    mount: str
    count: int
    size_bytes: float
    duration_s: float
    best_bytes_per_second: float
    latest_of_best: float
    queue_share: float | None
    round_trip_share: float | None
    rest_share: float | None
    lost_s: float
    trend_per_week: float | None


def find_saves(window: Window, job: JobSpan) -> tuple[Save, ...]:
    """Checkpoints that began and ended within the window, oldest first.

    Those at its edges are left to another window, since part of them is not seen.
    """
    phases = job_phases(window, job)
    found: list[Save] = []
    for first, last in _stretches(phases):
        if first > 0 and last < window.steps - 1:
            found += _of_stretch(window, job, phases, slice(first - 1, last + 2))
    return tuple(found)


def profile_of(saves: Sequence[Save]) -> SaveProfile:
    """One job's checkpoints on one mount, at least one, oldest first."""
    speeds = np.array([one.bytes_per_second for one in saves])
    best = float(speeds.max())
    return SaveProfile(
        job=saves[-1].job,
        mount=saves[-1].mount,
        count=len(saves),
        size_bytes=float(np.median([one.size_bytes for one in saves])),
        duration_s=float(np.median([one.duration_s for one in saves])),
        best_bytes_per_second=best,
        latest_of_best=float(speeds[-1]) / best,
        queue_share=_median([one.queue_share for one in saves]),
        round_trip_share=_median([one.round_trip_share for one in saves]),
        rest_share=_median([one.rest_share for one in saves]),
        lost_s=sum(one.lost_s or 0.0 for one in saves),
        trend_per_week=_trend(np.array([one.begin for one in saves]), speeds),
    )


def _median(values: Sequence[float | None]) -> float | None:
    read = [value for value in values if value is not None]
    return float(np.median(read)) if read else None


def _trend(times: Floats, speeds: Floats) -> float | None:
    """Median slope over all pairs (Theil and Sen), which a few slow ones do not bend."""
    if times.size < _LEAST_TREND or times[-1] - times[0] < _LEAST_TREND_S:
        return None
    times, speeds = times[-500:], np.log(np.maximum(speeds[-500:], 1.0))
    early, late = np.triu_indices(times.size, k=1)
    apart = times[late] - times[early]
    slopes = ((speeds[late] - speeds[early])[apart > 0]) / apart[apart > 0]
    return float(np.expm1(np.median(slopes) * WEEK_S))


def _stretches(phases: JobPhases) -> list[tuple[int, int]]:
    """First and last step of each checkpoint; one step of another phase within does not end it."""
    saving = phases.at(Phase.SAVE)
    found: list[tuple[int, int]] = []
    for step in np.flatnonzero(saving).tolist():
        if found and step - found[-1][1] <= 2:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


def _of_stretch(window: Window, job: JobSpan, phases: JobPhases, steps: slice) -> list[Save]:
    """One for each mount that took part; the steps on both sides may hold its edges."""
    written = _written_by_mount(window, job, steps)
    whole = sum(float(np.nansum(one)) for one in written.values())
    lost_s = _lost_s(window, phases, steps)
    begin, end = _edges(window, sum(np.nansum(one, axis=0) for one in written.values()), steps)
    if begin is None or end is None:
        return []
    found = []
    for mount, rates in written.items():
        size = float(np.nansum(rates))
        if size <= 0 or size < _LEAST_SHARE * whole:
            continue
        request_s, queue, trip = _layers(window, job, mount, steps)
        rest = None if queue is None or trip is None else max(0.0, 1.0 - queue - trip)
        found.append(
            Save(
                job=job.job,
                mount=mount,
                begin=begin,
                end=end,
                nodes=int((np.nansum(rates, axis=1) > 0).sum()),
                size_bytes=size * window.step_s,
                request_s=request_s,
                queue_share=queue,
                round_trip_share=trip,
                rest_share=rest,
                lost_s=None if lost_s is None else lost_s * size / whole,
            )
        )
    return found


def _edges(window: Window, rates: Floats, steps: slice) -> tuple[float | None, float | None]:
    """Begin and end, seconds: parts of a step by what was written in it against the fullest."""
    parts = np.round(rates / max(float(rates.max()), 1.0), 2)
    wrote = np.flatnonzero(parts >= _EDGE)
    if not wrote.size:
        return None, None
    first, last = int(wrote[0]), int(wrote[-1])
    times = window.times[steps]
    begin = float(times[first]) + (1.0 - float(parts[first])) * window.step_s
    if first == last:
        return float(times[first]), float(times[first]) + window.step_s
    return begin, float(times[last]) + float(parts[last]) * window.step_s


def _written_by_mount(window: Window, job: JobSpan, steps: slice) -> dict[str, Floats]:
    """Bytes a second by client and step, for each mount and the local disks."""
    written = window.metric(EntityKind.MOUNT, "mount_written_bytes_total")
    found = {
        mount: written[rows][:, steps]
        for mount in sorted({_mount(window, row) for row in window.rows_of(EntityKind.MOUNT, job)})
        if (rows := _clients(window, job, mount)).any()
    }
    disks = window.rows_of(EntityKind.DISK, job)
    found[LOCAL] = window.metric(EntityKind.DISK, "disk_written_bytes_total")[disks][:, steps]
    return found


def _mount(window: Window, row: int) -> str:
    strip = window.strip(EntityKind.MOUNT)
    return strip.keys[row].removeprefix(f"{window.nodes[strip.node[row]]}/")


def _clients(window: Window, job: JobSpan, mount: str) -> Flags:
    """Which rows of the strip of mounts are the job's clients of a mount."""
    count = len(window.strip(EntityKind.MOUNT).keys)
    mine = np.zeros(count, dtype=np.bool_)
    rows = window.rows_of(EntityKind.MOUNT, job).tolist()
    mine[[row for row in rows if _mount(window, row) == mount]] = True
    return mine


def _layers(
    window: Window, job: JobSpan, mount: str, steps: slice
) -> tuple[float | None, float | None, float | None]:
    """What a request took, and the shares of the client's queue and of the round trip."""
    if mount == LOCAL:
        return None, None, None
    rows = _clients(window, job, mount)

    def spent(name: str) -> float:
        return float(
            np.nansum(window.metric(EntityKind.MOUNT, f"mount_{name}_total")[rows][:, steps])
        )

    asked, execute = spent("operations"), spent("execute_seconds")
    if asked <= 0 or execute <= 0:
        return None, None, None
    queue, trip = spent("queue_seconds") / execute, spent("round_trip_seconds") / execute
    return execute / asked, min(1.0, queue), min(1.0, trip)


def _lost_s(window: Window, phases: JobPhases, steps: slice) -> float | None:
    usual = one_quantile(phases.effort[phases.at(Phase.COMPUTE)], 0.5)
    if usual != usual or usual <= 0:
        return None
    kept = np.clip(phases.effort[steps] / usual, 0.0, 1.0)
    return float(np.nansum(1.0 - kept)) * window.step_s
