"""Jobs: what loads the fleet, node partition by node partition."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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

    def load(self, now: float, warm_up_s: float) -> tuple[float, bool]:
        """Share of full load and whether a checkpoint is being written, at `now`."""
        since = now - self.start
        if since < warm_up_s:
            return since / warm_up_s, False
        phase = (since - warm_up_s) % self.checkpoint_every_s
        if phase > self.checkpoint_every_s - self.checkpoint_s:
            return 0.06, True  # a pause draws a little; public H100 runs dip to near idle
        return 1.0, False


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """What jobs ask of the fleet at one moment.

    Attributes:
        gpu: Share of full load, shape (GPUs,).
        gpu_watts: Draw at full load, shape (GPUs,); 0 where no job runs.
        gpu_memory: Share of memory in use, shape (GPUs,).
        writing: Nodes that write a checkpoint, bool, shape (nodes,).
    """

    gpu: Floats
    gpu_watts: Floats
    gpu_memory: Floats
    writing: NDArray[np.bool_]


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

    def advance(self, now: float) -> Load:
        """Start and end jobs that are due, and say what they ask for at `now`."""
        gpus = len(self._topology.gpus)
        load = Load(
            gpu=np.zeros(gpus),
            gpu_watts=np.zeros(gpus),
            gpu_memory=np.full(gpus, 0.006),  # the driver's own share of an idle GPU
            writing=np.zeros(len(self._topology.nodes), dtype=np.bool_),
        )
        for partition in self._partitions:
            if partition.job is not None and now >= partition.job.end:
                self._end(partition, now, JobState.COMPLETED)
            if partition.job is None and now >= partition.free_until:
                partition.job = self._begin(partition.nodes, now)
            if partition.job is not None:
                self._put(load, partition.job, now)
        return load

    def _put(self, load: Load, job: Job, now: float) -> None:
        rows = _gpu_rows(job.nodes, self._topology.gpus_per_node)
        share, writing = job.load(now, self._jobs.warm_up_s)
        load.gpu[rows] = share
        load.gpu_watts[rows] = job.gpu_watts
        load.gpu_memory[rows] = job.memory_share
        load.writing[job.nodes] = writing

    def _begin(self, nodes: NDArray[np.int64], now: float) -> Job:
        rng, jobs = self._rng, self._jobs
        self._number += 1
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
