"""What tells jobs on this node: files of procfs about a process, and a folder of job ids by GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwarden_agent.sources.job_ids import Job, clean_id, jobs_of_cgroup, jobs_of_environment
from gpuwarden_wire.events import JobKind

_CGROUP_BYTES = 16_384  # a dozen hierarchies of version 1, deeply nested
_STAT_BYTES = 1_024
_ENVIRONMENT_BYTES = 262_144
_MAPPING_BYTES = 4_096
_FILES_AT_MOST = 1_024
_STARTED = 19  # field 22 of proc(5) stat, counted from 0 behind the name's closing bracket


@dataclass(frozen=True, slots=True)
class Process:
    """What a look at one process brought.

    Attributes:
        started: Clock ticks since boot at its start: tells it from a later one of the same id.
        jobs: Jobs that it belongs to.
    """

    started: bytes
    jobs: frozenset[Job]


class JobFiles:
    """Reads processes; each one's cgroup and environment once.

    Args:
        proc_root: Where procfs is mounted.
    """

    def __init__(self, proc_root: str) -> None:
        self._proc = proc_root
        self._known: dict[int, Process] = {}
        self._own_jobs: frozenset[Job] | None = None

    def process(self, pid: int) -> Process:
        """A process and its jobs.

        Raises:
            OSError: It is gone, or may not be looked at.
        """
        folder = f"{self._proc}/{pid}"
        started = _started(_read(f"{folder}/stat", _STAT_BYTES))
        known = self._known.get(pid)
        if known is not None and known.started == started:
            return known
        jobs = jobs_of_cgroup(_read(f"{folder}/cgroup", _CGROUP_BYTES)) - self._own()
        process = Process(started, _with_environment(jobs, f"{folder}/environ"))
        self._known[pid] = process
        return process

    def retain(self, pids: set[int]) -> None:
        """Forget all other processes."""
        for pid in [pid for pid in self._known if pid not in pids]:
            del self._known[pid]

    def _own(self) -> frozenset[Job]:
        """Jobs of the agent itself: in a container, ids of other name spaces may hit upon us."""
        if self._own_jobs is None:
            try:
                self._own_jobs = jobs_of_cgroup(_read(f"{self._proc}/self/cgroup", _CGROUP_BYTES))
            except OSError:
                self._own_jobs = frozenset()
        return self._own_jobs


def _with_environment(jobs: frozenset[Job], path: str) -> frozenset[Job]:
    """Jobs of the cgroup, and those of the environment that are of another kind.

    A kind that the cgroup names is not asked of the environment, which is the user's to write.
    Without the privilege to read it (CAP_SYS_PTRACE) there is no torchrun id.
    """
    try:
        named = jobs_of_environment(_read(path, _ENVIRONMENT_BYTES))
    except OSError:
        return jobs
    kinds = {kind for kind, _ in jobs}
    return jobs | {job for job in named if job[0] not in kinds}


def read_mapping(folder: str) -> Mapping[str, tuple[Job, ...]]:
    """Slurm jobs by GPU, from a folder as dcgm-exporter's --hpc-job-mapping-dir.

    A file is named by the GPU's index, "0", by index and MIG instance, "0.7", or by its UUID; each
    of its lines is a job id. Names that are none of these are passed over.

    Returns:
        Jobs by index or UUID.

    Raises:
        OSError: The folder cannot be listed.
    """
    jobs: dict[str, dict[Job, None]] = {}
    names = sorted(os.listdir(folder))[:_FILES_AT_MOST]  # noqa: PTH208 - names only
    for name in names:
        gpu = name if name.startswith("GPU-") else name.partition(".")[0]
        if not (gpu.isdecimal() or gpu.startswith("GPU-")):
            continue
        try:
            text = _read(f"{folder}/{name}", _MAPPING_BYTES)
        except OSError:
            continue  # taken away by an epilog between two looks
        ids = filter(None, map(clean_id, text.splitlines()))
        jobs.setdefault(gpu, {}).update({(JobKind.SLURM, job_id): None for job_id in ids})
    return {gpu: tuple(found) for gpu, found in jobs.items()}


def _started(stat: bytes) -> bytes:
    # 4321 (python3) S 4320 …: the name may hold blanks and brackets, so count from its last bracket
    fields = stat.rpartition(b")")[2].split()
    return fields[_STARTED] if len(fields) > _STARTED else b""


def _read(path: str, limit: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        text = os.read(descriptor, limit)
        # procfs gives an environment a page at a time
        while len(text) < limit and (part := os.read(descriptor, limit - len(text))):
            text += part
    finally:
        os.close(descriptor)
    return text
