"""Which job a process belongs to: by the path of its cgroup and by its environment. Pure.

Nothing but the id leaves: what else stands in an environment is neither kept nor told.
"""

from __future__ import annotations

import re

from gpuwarden_wire.events import JobKind

Job = tuple[JobKind, str]

# Slurm's cgroup plug-ins. Version 1: "4:devices:/slurm/uid_1000/job_1234/step_0/task_0", with
# several slurmd on a host "/slurm_node1/uid_1000/…". Version 2:
# "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0", or "node1_slurmstepd.scope".
_SLURM = re.compile(
    rb"/(?:slurm(?:_[^/]+)?/uid_\d+|(?:[^/]*_)?slurmstepd\.scope)/job_(\d{1,10})(?=[/\s]|$)"
)

# Kubernetes, driver cgroupfs: "/kubepods/burstable/pod2b0a9e9a-1b2c-4d5e-8f90-123456789abc/…";
# driver systemd: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2b0a9e9a_1b2c_…
# .slice/cri-containerd-….scope". A static pod's uid is a hash of its manifest, 32 hex digits.
_POD = re.compile(
    rb"kubepods[^\n]*?[/-]pod"
    rb"([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?=[./\s]|$)"
)

# torch.distributed.elastic sets it for its workers; "none" where torchrun was given no --rdzv-id.
_TORCHRUN = b"TORCHELASTIC_RUN_ID"
_NO_RUN_ID = "none"
# Slurm sets it for the tasks of a job; asked where no cgroup tells.
_SLURM_JOB = b"SLURM_JOB_ID"

_ID_AT_MOST = 128
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]*")


def jobs_of_cgroup(text: bytes) -> frozenset[Job]:
    """Jobs that the text of /proc/PID/cgroup names, in either version of the hierarchy."""
    jobs = {(JobKind.SLURM, found.decode()) for found in _SLURM.findall(text)}
    pods = (found.decode().replace("_", "-") for found in _POD.findall(text))
    return frozenset(jobs | {(JobKind.KUBERNETES, pod) for pod in pods})


def jobs_of_environment(block: bytes) -> frozenset[Job]:
    """Jobs that the block of /proc/PID/environ names."""
    jobs: set[Job] = set()
    for name, kind in ((_TORCHRUN, JobKind.TORCHRUN), (_SLURM_JOB, JobKind.SLURM)):
        job_id = clean_id(_value_of(block, name))
        if job_id and not (kind is JobKind.TORCHRUN and job_id == _NO_RUN_ID):
            jobs.add((kind, job_id))
    return frozenset(jobs)


def clean_id(word: bytes) -> str:
    """A job id as it may be sent, "" where it does not look like one.

    Users choose some of them: what has blanks, quotes or control characters is none.
    """
    text = word.strip().decode("ascii", errors="replace")
    return text if len(text) <= _ID_AT_MOST and _ID.fullmatch(text) else ""


def _value_of(block: bytes, name: bytes) -> bytes:
    key = name + b"="
    if block.startswith(key):
        start = len(key)
    elif (at := block.find(b"\0" + key)) >= 0:
        start = at + 1 + len(key)
    else:
        return b""
    end = block.find(b"\0", start)
    return b"" if end < 0 else block[start:end]  # one without its end was cut short
