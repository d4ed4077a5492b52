"""Routes about jobs as values; see `calls.py`."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_runtime.call import Call, get, segment, write
from gpuwarden_runtime.job_records import JobWhy, ToldItems


def why_job(job: str) -> Call[JobWhy]:
    """Whether it was a job's program or the hardware; while it runs, and after.

    Args:
        job: "KIND:ID" ("slurm:4711"), or the id alone where one job has it.
    """
    return get(f"/v1/jobs/{segment(job)}/why", JobWhy)


def end_job(
    job: str,
    state: str,
    exit_code: int | None = None,
    *,
    user: str = "",
    nodes: Sequence[str] = (),
    ended_at: float | None = None,
) -> Call[ToldItems]:
    """Tell how a job ended: evidence with weight about its nodes, never a verdict.

    Args:
        job: As for `why_job`.
        state: In the words of Slurm or Kubernetes: "FAILED".
        exit_code: Of the job, None unknown.
        user: Whose it was.
        nodes: Where it ran; none: where the inventories saw it.
        ended_at: Epoch seconds; None for now.
    """
    said: dict[str, object] = {"job": job, "state": state, "user": user, "nodes": list(nodes)}
    if exit_code is not None:
        said["exit_code"] = exit_code
    if ended_at is not None:
        said["ended_at"] = ended_at
    return write("/v1/events", ToldItems, {"job_ends": [said]})
