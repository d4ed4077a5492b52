"""Which job runs on which GPU: Slurm, Kubernetes, torchrun; the ids and nothing else.

What each GPU's processes belong to tells it, and a folder that the scheduler's prolog fills. It
goes with the inventory, on change: GPUs are compared within a job.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuwarden_agent.collectors.context import CollectorContext
from gpuwarden_agent.collectors.contract import Collector, CollectorError, Harvest
from gpuwarden_agent.sources.job_files import JobFiles, read_mapping
from gpuwarden_agent.sources.job_ids import Job
from gpuwarden_agent.sources.kernel_files import reason_of
from gpuwarden_agent.sources.nvml import GpuProcesses
from gpuwarden_wire.events import GpuIdentity, GpuJob, Inventory, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading, Unavailable

LOOK_EVERY_S = 15.0
"""A job lasts minutes at least; NVML is asked for processes at this pace too."""

AWAIT_NVML_S = 60.0
JOBS_AT_MOST = 256
_ALL, _WITHOUT = "node_gpu_processes", "node_gpu_processes_without_job"


@dataclass(slots=True)
class _Look:
    """What one look at all processes brought."""

    jobs: dict[str, set[Job]] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    seen: int = 0
    without_job: int = 0
    reason: str = ""


class JobCollector:
    """Looks at the processes of GPUs, and at the folder of job ids.

    Args:
        proc_root: Where procfs is mounted.
        mapping_folder: Job ids by GPU; None where there is no such folder.
        interval_s: Cadence, seconds; between looks a call costs nothing.
        deadline_s: Deadline of one call, seconds.
        processes: Processes by GPU as NVML gave them last, another object where it was asked again;
            None before it was. None instead of it where NVML is off.
        gpus: The node's GPUs, to tell which one an index means.
        clock: Monotonic seconds.
    """

    name = "jobs"

    def __init__(
        self,
        proc_root: Path,
        mapping_folder: Path | None,
        interval_s: float,
        deadline_s: float,
        processes: Callable[[], GpuProcesses | None] | None,
        gpus: Callable[[], Sequence[GpuIdentity]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.interval_s = interval_s
        self.deadline_s = deadline_s
        self._files = JobFiles(str(proc_root))
        self._mapping_folder = mapping_folder
        self._asks_nvml = processes is not None
        self._processes = processes or _never
        self._gpus = gpus
        self._clock = clock
        self._due_at = -math.inf
        self._awaited_until: float | None = None
        self._table: GpuProcesses | None = None
        self._jobs: dict[str, set[Job]] = {}
        self._row: Mapping[str, Reading] = {}
        self._sent: tuple[GpuJob, ...] | None = None

    def collect(self, now: float) -> Harvest:
        """How many processes compute on GPUs, and the jobs where they changed.

        Raises:
            CollectorError: The folder of job ids is set and cannot be listed.
        """
        table, clock = self._processes(), self._clock()
        if table is self._table and clock < self._due_at:
            return Harvest(rows=self._rows())
        mapped = self._mapped()
        self._table, self._due_at = table, clock + LOOK_EVERY_S
        if any(gpu.isdecimal() for gpu in mapped):
            self._due_at = clock  # whose index it is will be known when the GPUs are
        if table is not None:
            self._take(self._look(table), table)
        jobs = _listed(self._jobs, mapped)
        changed = jobs != self._sent and (table is not None or self._may_be_silent(clock))
        if changed:
            self._sent = jobs
        return Harvest(rows=self._rows(), inventory=Inventory(jobs=jobs) if changed else None)

    def close(self) -> None:
        """Nothing is held open."""

    def _may_be_silent(self, clock: float) -> bool:
        """NVML says nothing: true once it had time to, or where it is not asked at all.

        Until then what was known before the agent was restarted still holds.
        """
        if self._awaited_until is None:
            self._awaited_until = clock + (AWAIT_NVML_S if self._asks_nvml else 0.0)
        return clock >= self._awaited_until

    def _rows(self) -> Mapping[EntityKind, Mapping[str, Mapping[str, Reading]]]:
        return {EntityKind.NODE: {"": self._row}} if self._row else {}

    def _look(self, table: GpuProcesses) -> _Look:
        look = _Look()
        for uuid, pids in table.items():
            if pids is None:  # lost: what ran on it then is what it is known by
                look.jobs[uuid] = self._jobs.get(uuid, set())
                continue
            look.jobs[uuid] = set()
            for pid in pids:
                self._look_at(pid, uuid, look)
        self._files.retain(look.pids)
        return look

    def _look_at(self, pid: int, uuid: str, look: _Look) -> None:
        first = pid not in look.pids  # one process may compute on several GPUs
        look.pids.add(pid)
        try:
            jobs = self._files.process(pid).jobs
        except OSError as error:
            look.reason = reason_of(error)
            return
        look.jobs[uuid] |= jobs
        if first:
            look.seen += 1
            look.without_job += not jobs

    def _take(self, look: _Look, table: GpuProcesses) -> None:
        self._jobs = look.jobs
        if all(pids is None for pids in table.values()):
            self._row = dict.fromkeys((_ALL, _WITHOUT), Unavailable("gpu_is_lost"))
            return
        without: Reading = look.without_job
        if look.pids and not look.seen:
            # All of them gone between two looks, or in a process name space that is not ours.
            without = Unavailable(look.reason)
        self._row = {_ALL: len(look.pids), _WITHOUT: without}

    def _mapped(self) -> dict[str, tuple[Job, ...]]:
        """Jobs by UUID as the folder says."""
        if self._mapping_folder is None:
            return {}
        try:
            mapping = read_mapping(str(self._mapping_folder))
        except OSError as error:
            raise CollectorError(
                f"job_folder_{reason_of(error)}",
                f"Let the agent list {self._mapping_folder}, or unset "
                "GPUWARDEN_AGENT_HPC_JOB_FOLDER.",
            ) from error
        uuids = {str(gpu.index): gpu.gpu_uuid for gpu in self._gpus() if gpu.index is not None}
        return {uuids.get(gpu, gpu): jobs for gpu, jobs in mapping.items()}


def _never() -> GpuProcesses | None:
    return None


def _listed(
    running: Mapping[str, Iterable[Job]], mapped: Mapping[str, Iterable[Job]]
) -> tuple[GpuJob, ...]:
    """All jobs in a fixed order; the folder tells of GPUs whose processes name no Slurm job."""
    found: set[tuple[str, JobKind, str]] = {
        (uuid, kind, job_id) for uuid, jobs in running.items() for kind, job_id in jobs
    }
    told = {uuid for uuid, kind, _ in found if kind is JobKind.SLURM}
    for uuid, jobs in mapped.items():
        if uuid.startswith("GPU-") and uuid not in told:
            found |= {(uuid, kind, job_id) for kind, job_id in jobs}
    ordered = sorted(found)[:JOBS_AT_MOST]
    return tuple(GpuJob(gpu_uuid=uuid, kind=kind, job_id=job_id) for uuid, kind, job_id in ordered)


def build(context: CollectorContext) -> Collector | None:
    """The collector as the settings want it; None where nothing could tell of jobs."""
    settings, probe = context.settings, context.nvml_probe
    if probe is None and settings.hpc_job_folder is None:
        return None
    return JobCollector(
        settings.proc_root,
        settings.hpc_job_folder,
        settings.interval_s,
        settings.deadline_s,
        probe.processes if probe is not None else None,
        context.gpus,
    )
