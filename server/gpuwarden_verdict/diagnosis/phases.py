"""What a job does with its nodes: from GPU load and storage throughput alone, sharper with steps.

The rule is that of an operation that watched 504 GPUs: a save is much writing, a load is reading
while the GPUs rest (cluster-wide 20 GB/s of writing, 2 GB/s of reading under 50 % of utilisation).
Both are taken a node here, so that they hold for jobs of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gpuwarden_verdict.diagnosis.robust import (
    Run,
    longest_run,
    mean,
    middle,
    one_quantile,
    over,
    total,
)
from gpuwarden_verdict.diagnosis.window import Flags, Floats, JobSpan, Window
from gpuwarden_wire.metrics import EntityKind

WORKING = 0.5
"""Effort from which GPUs are at work whatever else they show; and utilisation under which they
rest."""
_TALKS = 0.05
"""Share of its best traffic from which a job goes on, though its GPUs wait in collectives."""
SAVE_BYTES_A_NODE = 3e7
"""Bytes a second; a tenth of what the reference operation's rule comes to."""
LOAD_BYTES_A_NODE = 2e7
_PAUSED = 0.85
"""Effort under which a step of much writing is a save: within a minute both happen."""
_WAITING_S = 0.5
"""Requests in flight a second of each node from which it waits for storage."""
_BLOCKED = 3.0
_HELD_BYTES = 2e9
"""Memory in use from which a GPU has a program."""
SLOW_PACE = 0.94
_LEAST_PAST = 5


class Phase(StrEnum):
    """What a job does."""

    LOAD = "load"  # it reads data or a checkpoint, the GPUs rest
    COMPUTE = "compute"
    SAVE = "save"  # it writes a checkpoint
    STALLED = "stalled"  # it has a program on its GPUs, which do nothing
    IDLE = "idle"
    UNKNOWN = "unknown"  # nothing of it was read, or it did not run


@dataclass(frozen=True, slots=True, eq=False)
class JobPhases:
    """A job over the window, all of shape (steps,).

    Attributes:
        phase: What it did.
        effort: Median over its GPUs of their share of full effort, 0..1.
        read_bytes: Bytes a second that it read of mounts and disks, in all.
        written_bytes: The same, written.
        pace: Speed against its own best, about 1 as it should be; NaN while it does not compute.
        measured: Whether the pace is of steps that the job told, and not of traffic and effort.
    """

    phase: tuple[Phase, ...]
    effort: Floats
    read_bytes: Floats
    written_bytes: Floats
    pace: Floats
    measured: bool

    def at(self, *wanted: Phase) -> Flags:
        """Steps in some of the phases."""
        return np.array([one in wanted for one in self.phase], dtype=np.bool_)

    @property
    def running(self) -> Flags:
        """Steps in which it ran and was read."""
        return ~self.at(Phase.UNKNOWN)

    @property
    def resting(self) -> Flags:
        """Steps in which its GPUs rest by design: it saves, loads or does nothing."""
        return self.at(Phase.SAVE, Phase.LOAD, Phase.IDLE)

    def shares(self, first: int) -> Mapping[Phase, float]:
        """Share of the steps from `first` on in each phase that was known."""
        known = [one for one in self.phase[first:] if one is not Phase.UNKNOWN]
        return {one: known.count(one) / len(known) for one in Phase if one in known}

    def slow_run(self, first: int) -> Run | None:
        """Steps from `first` on over which it was slower than its own best."""
        read = np.isfinite(self.pace) & (np.arange(self.pace.size) >= first)
        return longest_run(self.pace < SLOW_PACE, read)

    def lost(self, run: Run | None) -> float:
        """Share of its pace that was lost over a run."""
        if run is None:
            return 0.0
        kept = mean(self.pace[run.steps])
        return max(0.0, 1.0 - kept) if kept == kept else 0.0


def gpu_effort(window: Window, job: JobSpan | None) -> Floats:
    """Share of full effort of a job's GPUs, 0..1, shape (GPUs, steps).

    The smaller of utilisation and of the draw between idle and full: GPUs that wait in a collective
    show full utilisation and a third of the draw.
    """
    rows = window.rows_of(EntityKind.GPU, job)
    watts = window.metric(EntityKind.GPU, "gpu_power_watts")[rows]
    limit = window.metric(EntityKind.GPU, "gpu_power_limit_watts")[rows]
    used = window.metric(EntityKind.GPU, "gpu_utilization_ratio")[rows]
    most, allowed = one_quantile(watts, 0.95), one_quantile(limit, 0.5)
    full = max(most, 0.5 * allowed) if allowed == allowed else most
    drawn = np.clip((watts - 0.2 * full) / (0.8 * full), 0.0, 1.0)
    effort: Floats = np.fmin(drawn, used)
    return effort


def job_phases(window: Window, job: JobSpan) -> JobPhases:
    """What a job did in each step."""
    effort, used = middle(gpu_effort(window, job), 0), utilization(window, job)
    read = _moved(window, job, "read_bytes_total")
    written = _moved(window, job, "written_bytes_total")
    count = max(1, job.nodes.size)
    waits, held = _waits(window, job), _held(window, job)
    runs, told = window.runs(job), _silent_steps(window, job)
    saves = (written / count >= SAVE_BYTES_A_NODE) & (written >= read) & (effort < _PAUSED)
    rests = np.where(np.isfinite(used), used, effort) < WORKING
    loads = (read / count >= LOAD_BYTES_A_NODE) & (read > written) & rests
    works = (effort >= WORKING) | (~rests & (_talking(window, job) >= _TALKS))
    phase: list[Phase] = []
    for step in range(window.steps):
        if not runs[step] or not (np.isfinite(effort[step]) or waits[step]):
            phase.append(Phase.UNKNOWN)
        elif saves[step]:
            phase.append(Phase.SAVE)
        elif loads[step]:
            phase.append(Phase.LOAD)
        elif works[step] and not told[step]:
            phase.append(Phase.COMPUTE)
        else:
            phase.append(Phase.STALLED if waits[step] or held[step] else Phase.IDLE)
    draft = JobPhases(tuple(phase), effort, read, written, np.full(window.steps, np.nan), False)
    pace, measured = _pace(window, job, draft)
    return JobPhases(draft.phase, effort, read, written, pace, measured)


def _moved(window: Window, job: JobSpan, what: str) -> Floats:
    """Bytes a second of mounts and disks together; what was not read counts as nothing moved."""
    moved = np.zeros(window.steps)
    for kind, name in ((EntityKind.MOUNT, f"mount_{what}"), (EntityKind.DISK, f"disk_{what}")):
        rows = window.rows_of(kind, job)
        moved += np.nan_to_num(total(window.metric(kind, name)[rows]))
    return moved


def utilization(window: Window, job: JobSpan | None) -> Floats:
    """Median utilisation of a job's GPUs, shape (steps,)."""
    rows = window.rows_of(EntityKind.GPU, job)
    return middle(window.metric(EntityKind.GPU, "gpu_utilization_ratio")[rows], 0)


def _talking(window: Window, job: JobSpan) -> Floats:
    """Traffic of the job's NICs against its best, 0 where not known, shape (steps,)."""
    sent = _sent(window, job)
    return np.nan_to_num(over(sent, one_quantile(sent, 0.85)))


def _sent(window: Window, job: JobSpan) -> Floats:
    """Bytes a second of the job's NICs together; NaN for a job on one node: it talks to nobody."""
    rows = window.rows_of(EntityKind.NIC, job)
    sent = total(window.metric(EntityKind.NIC, "nic_transmitted_bytes_total")[rows])
    return sent if job.nodes.size > 1 else np.full(window.steps, np.nan)


def _waits(window: Window, job: JobSpan) -> Flags:
    """Steps in which most nodes wait for storage."""
    mounts, nodes = (window.rows_of(kind, job) for kind in (EntityKind.MOUNT, EntityKind.NODE))
    in_flight = middle(window.metric(EntityKind.MOUNT, "mount_execute_seconds_total")[mounts], 0)
    blocked = middle(window.metric(EntityKind.NODE, "node_processes_blocked")[nodes], 0)
    return np.asarray((in_flight >= _WAITING_S) | (blocked >= _BLOCKED), dtype=np.bool_)


def _held(window: Window, job: JobSpan) -> Flags:
    """Steps in which most GPUs have a program."""
    rows = window.rows_of(EntityKind.GPU, job)
    used = middle(window.metric(EntityKind.GPU, "gpu_memory_used_bytes")[rows], 0)
    busy = middle(window.metric(EntityKind.GPU, "gpu_utilization_ratio")[rows], 0)
    return np.asarray((used >= _HELD_BYTES) | (busy >= 0.3), dtype=np.bool_)


def told_steps(window: Window, job: JobSpan) -> Floats | None:
    """Time of a training step as the job told it, else as text metrics of its nodes show it.

    Returns:
        Shape (steps,), NaN where nothing was told; None where nothing ever was.
    """
    if job.step_seconds is not None and np.isfinite(job.step_seconds).any():
        return job.step_seconds
    rows = window.rows_of(EntityKind.NODE, job)
    rate = window.metric(EntityKind.NODE, "node_job_steps_total")[rows]
    seconds = window.metric(EntityKind.NODE, "node_job_step_seconds")[rows]
    # A text file keeps its last numbers when the job stands still: then it makes no step.
    seconds = np.where(np.nan_to_num(rate, nan=1.0) > 0, seconds, np.nan)
    told = middle(np.where(np.isfinite(seconds), seconds, over(np.ones(rate.shape), rate)), 0)
    return told if np.isfinite(told).any() else None


def _silent_steps(window: Window, job: JobSpan) -> Flags:
    """Steps in which a job that tells its steps told none for three times their length."""
    told = told_steps(window, job)
    if told is None or not np.isfinite(told).any():
        return np.zeros(window.steps, dtype=np.bool_)
    patience = max(1.0, 3.0 * one_quantile(told, 0.5) / window.step_s)
    heard = np.where(np.isfinite(told), np.arange(window.steps), -1)
    latest = np.maximum.accumulate(heard)
    return np.asarray((latest >= 0) & (np.arange(window.steps) - latest > patience))


def _pace(window: Window, job: JobSpan, draft: JobPhases) -> tuple[Floats, bool]:
    """Pace and whether it is of told steps.

    Else of what a synchronous job moves with each step: traffic of its NICs, and effort.
    """
    at_work = draft.at(Phase.COMPUTE)
    told = told_steps(window, job)
    if told is not None and np.isfinite(told).sum() >= _LEAST_PAST:
        pace, measured = _against_best(over(np.ones(window.steps), told), at_work, window), True
    else:
        speeds = (_sent(window, job), draft.effort)
        both = [_against_best(one, at_work, window) for one in speeds]
        pace, measured = middle(np.array(both), 0), False
    pace[draft.at(Phase.STALLED)] = 0.0
    return pace, measured


def _against_best(speed: Floats, at_work: Flags, window: Window) -> Floats:
    """Speed over what it was in the past; over the window's own best where there is no past."""
    speed = np.where(at_work, speed, np.nan)
    past = speed[: window.first]
    enough = np.isfinite(past).sum() >= _LEAST_PAST
    best = one_quantile(past, 0.6) if enough else one_quantile(speed, 0.85)
    return over(speed, best)
