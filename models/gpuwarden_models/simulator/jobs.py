"""Jobs: what loads the fleet, node partition by node partition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.simulator.parameters import JobParameters, Parameters
from gpuwarden_models.simulator.topology import Topology

Floats: TypeAlias = NDArray[np.float64]


class JobState(StrEnum):
    """How a job stands or ended; the words of recording jobs.csv."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"


class JobPhase(StrEnum):
    """What a job does with its nodes."""

    LOAD = "load"  # program, data and checkpoint are read, the GPUs warm up
    COMPUTE = "compute"
    SAVE = "save"  # a checkpoint is written, the GPUs wait
    HANG = "hang"  # a rank is gone: the others wait in a collective, at full utilisation


@dataclass(slots=True)
class Job:
    """One training job on whole nodes.

    Attributes:
        job_id: "job-" and a number.
        user: Owner.
        nodes: Rows of its nodes.
        start: Epoch seconds.
        end: Epoch seconds; planned while it runs.
        state: How it stands.
        gpu_watts: Draw of each of its GPUs at full load, shape (nodes x GPUs per node,).
        memory_share: Share of GPU memory in use.
        checkpoint_every_s: Period of its checkpoints.
        checkpoint_s: Length of one.
        hangs_from: Epoch seconds since when it waits for a rank; infinite while it works.
        ends_as: How it ends at `end`; None draws it.
    """

    job_id: str
    user: str
    nodes: NDArray[np.int64]
    start: float
    end: float
    state: JobState
    gpu_watts: Floats
    memory_share: float
    checkpoint_every_s: float
    checkpoint_s: float
    hangs_from: float = inf
    ends_as: JobState | None = None

    def load(self, now: float, jobs: JobParameters) -> tuple[float, JobPhase]:
        """Share of full load and phase at `now`."""
        since, warm_up_s = now - self.start, jobs.warm_up_s
        if now >= self.hangs_from:
            return jobs.spin_load, JobPhase.HANG
        if since < warm_up_s:
            return since / warm_up_s, JobPhase.LOAD
        phase = (since - warm_up_s) % self.checkpoint_every_s
        if phase > self.checkpoint_every_s - self.checkpoint_s:
            return jobs.paused_load, JobPhase.SAVE
        return 1.0, JobPhase.COMPUTE


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What jobs ask of the fleet at one moment.

    Attributes:
        gpu: Share of full load, shape (GPUs,).
        gpu_watts: Draw at full load, shape (GPUs,); 0 where no job runs.
        gpu_memory: Share of memory in use, shape (GPUs,).
        writing: Nodes that write a checkpoint, bool, shape (nodes,).
        reading: Nodes whose job starts and reads, bool, shape (nodes,).
        spinning: GPUs that wait in a collective at full utilisation, bool, shape (GPUs,).
    """

    gpu: Floats
    gpu_watts: Floats
    gpu_memory: Floats
    writing: NDArray[np.bool_]
    reading: NDArray[np.bool_]
    spinning: NDArray[np.bool_]

    @property
    def busy(self) -> Floats:
        """Share of full load of each node, shape (nodes,)."""
        shares: Floats = self.gpu.reshape(self.writing.size, -1).mean(axis=1)
        return shares

    def pause(self, nodes: NDArray[np.int64], gpus_per_node: int, load: float) -> None:
        """Let the jobs on some nodes write a checkpoint, their GPUs at some load."""
        rows = _gpu_rows(nodes, gpus_per_node)
        self.gpu[rows] = np.minimum(self.gpu[rows], load)
        self.writing[nodes] = self.gpu_watts[rows].reshape(nodes.size, -1).any(axis=1)


@dataclass(slots=True)
class _Partition:
    nodes: NDArray[np.int64]
    job: Job | None
    free_until: float


class JobBoard:
    """Runs one job after another on each partition of the fleet."""

    def __init__(
        self, topology: Topology, parameters: Parameters, rng: np.random.Generator, start: float
    ) -> None:
        """A fleet in full swing at `start`: jobs began before it."""
        self._topology = topology
        self._jobs: JobParameters = parameters.jobs
        self._gpu = parameters.gpu
        self._rng = rng
        (self._ends,) = rng.spawn(1)  # of its own: how jobs end changes nobody else's numbers
        self._changed: set[int] = set()
        self._drained_until: Floats = np.full(len(topology.nodes), -np.inf)
        self._number = 0
        self.ended: list[Job] = []
        self._partitions = [
            _Partition(nodes, None, start) for nodes in _partition(topology, self._jobs.nodes)
        ]
        for partition in self._partitions:
            job = self._begin(partition.nodes, start)
            passed = float(rng.uniform(0.05, 0.7)) * (job.end - job.start)
            job.start, job.end = job.start - passed, job.end - passed
            partition.job = job

    @property
    def running(self) -> tuple[Job, ...]:
        """Jobs that run now."""
        return tuple(p.job for p in self._partitions if p.job is not None)

    def job_on(self, node: int) -> Job | None:
        """The job on a node, None where it is free."""
        return next((job for job in self.running if node in job.nodes), None)

    def stop(self, job: Job, now: float, state: JobState) -> None:
        """End a running job early; its nodes stay free for a while."""
        for partition in self._partitions:
            if partition.job is job:
                self._end(partition, now, state)

    def hold(self, nodes: NDArray[np.int64], until: float) -> None:
        """No job starts on partitions of some nodes before `until`."""
        for partition in self._partitions:
            if np.isin(partition.nodes, nodes).any():
                partition.free_until = max(partition.free_until, until)

    def hang(self, job: Job, now: float, fails_at: float, state: JobState) -> None:
        """A running job loses a rank: it waits, and ends when it notices."""
        if now >= job.hangs_from:
            return
        job.hangs_from = now
        job.end, job.ends_as = min(job.end, fails_at), state

    def drain(self, nodes: NDArray[np.int64], until: float) -> None:
        """No new job takes these nodes before `until`; the partition goes on without them."""
        self._drained_until[nodes] = np.maximum(self._drained_until[nodes], until)

    def advance(self, now: float) -> Load:
        """Start and end jobs that are due, and say what they ask for at `now`."""
        gpus = len(self._topology.gpus)
        load = Load(
            gpu=np.zeros(gpus),
            gpu_watts=np.zeros(gpus),
            gpu_memory=np.full(gpus, 0.006),  # the driver's own share of an idle GPU
            writing=np.zeros(len(self._topology.nodes), dtype=np.bool_),
            reading=np.zeros(len(self._topology.nodes), dtype=np.bool_),
            spinning=np.zeros(gpus, dtype=np.bool_),
        )
        for partition in self._partitions:
            if partition.job is not None and now >= partition.job.end:
                self._end(partition, now, partition.job.ends_as or self._planned_end())
            free = partition.nodes[self._drained_until[partition.nodes] <= now]
            if partition.job is None and now >= partition.free_until and free.size:
                partition.job = self._begin(free, now)
            if partition.job is not None:
                self._put(load, partition.job, now)
        return load

    def _put(self, load: Load, job: Job, now: float) -> None:
        rows = _gpu_rows(job.nodes, self._topology.gpus_per_node)
        share, phase = job.load(now, self._jobs)
        load.gpu[rows] = share
        load.spinning[rows] = phase is JobPhase.HANG
        load.gpu_watts[rows] = job.gpu_watts
        load.gpu_memory[rows] = job.memory_share
        load.writing[job.nodes] = phase is JobPhase.SAVE
        load.reading[job.nodes] = phase is JobPhase.LOAD

    def take_changes(self) -> list[int]:
        """Nodes on which a job started or ended since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    def _planned_end(self) -> JobState:
        drawn, jobs = float(self._ends.random()), self._jobs
        shares = (
            (JobState.FAILED, jobs.failed_share),
            (JobState.CANCELLED, jobs.cancelled_share),
            (JobState.TIMEOUT, jobs.timeout_share),
        )
        for state, share in shares:
            drawn -= share
            if drawn < 0:
                return state
        return JobState.COMPLETED

    def _begin(self, nodes: NDArray[np.int64], now: float) -> Job:
        rng, jobs = self._rng, self._jobs
        self._number += 1
        self._changed.update(nodes.tolist())
        watts = np.full(
            nodes.size * self._topology.gpus_per_node, rng.uniform(*self._gpu.busy_power_watts)
        )
        watts *= rng.normal(1.0, 0.012, watts.size)
        if rng.random() < self._gpu.uneven_job_share:
            watts *= rng.uniform(0.6, 1.0, watts.size)
        return Job(
            job_id=f"job-{self._number:05d}",
            user=f"user{int(rng.integers(1, 12)):02d}",
            nodes=nodes,
            start=now,
            end=now + _log_uniform(rng, jobs.length_s),
            state=JobState.RUNNING,
            gpu_watts=watts,
            memory_share=float(rng.uniform(0.7, 0.95)),
            checkpoint_every_s=_log_uniform(rng, jobs.checkpoint_every_s),
            checkpoint_s=_log_uniform(rng, jobs.checkpoint_s),
        )

    def _end(self, partition: _Partition, now: float, state: JobState) -> None:
        if partition.job is None:
            return
        partition.job.end, partition.job.state = now, state
        self._changed.update(partition.nodes.tolist())
        self.ended.append(partition.job)
        partition.job = None
        partition.free_until = now + _log_uniform(self._rng, self._jobs.gap_s)


def _partition(topology: Topology, sizes: tuple[int, ...]) -> list[NDArray[np.int64]]:
    """Cut the nodes into runs of the given sizes, over and over, never larger than what is left."""
    parts: list[NDArray[np.int64]] = []
    first = 0
    while first < len(topology.nodes):
        for size in sizes:
            left = len(topology.nodes) - first
            if left == 0:
                break
            taken = min(size, left)
            parts.append(np.arange(first, first + taken))
            first += taken
    return parts


def _gpu_rows(nodes: NDArray[np.int64], gpus_per_node: int) -> NDArray[np.int64]:
    return (nodes[:, None] * gpus_per_node + np.arange(gpus_per_node)).ravel()


def _log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    low, high = np.log(bounds)
    return float(np.exp(rng.uniform(low, high)))
