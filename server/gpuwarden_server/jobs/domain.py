"""Runs and ends of jobs as values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuwarden_verdict.job_ends import JobEnd
from gpuwarden_wire.events import JobKind

Runs = Mapping[str, tuple[str, ...]]
"""GPUs by job, "KIND:ID", on one node."""

MOST_CHARACTERS = 255


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job on one node.

    Attributes:
        job: "KIND:ID".
        node_id: The node.
        gpu_uuids: All GPUs that it had there.
        since: Epoch seconds of the inventory that first named it.
        until: Epoch seconds of the one that no longer did, None while it runs.
    """

    job: str
    node_id: str
    gpu_uuids: tuple[str, ...]
    since: float
    until: float | None


@dataclass(frozen=True, slots=True)
class ToldEnd:
    """An end of a job as it is kept.

    Attributes:
        id: Made from what is said.
        end: What is said.
        nodes: Nodes that it ran on.
        told_at: Epoch seconds.
        author: Name of the key.
    """

    id: str
    end: JobEnd
    nodes: tuple[str, ...]
    told_at: float
    author: str


def runs_of(gpus: Iterable[tuple[str, Iterable[tuple[str, str]]]]) -> Runs:
    """GPUs by job, of (gpu_uuid, jobs as (kind, id)) of one node."""
    runs: dict[str, list[str]] = {}
    for gpu_uuid, jobs in gpus:
        for kind, job_id in jobs:
            runs.setdefault(f"{kind}:{job_id}", []).append(gpu_uuid)
    return {job: tuple(sorted(uuids)) for job, uuids in runs.items()}


def possible_names(text: str) -> tuple[str, ...]:
    """What a person may mean by a job's name: "KIND:ID", or an id of any kind."""
    kind, _, job_id = text.partition(":")
    if kind in set(JobKind) and job_id:
        return (text,)
    return tuple(f"{kind}:{text}" for kind in JobKind)
