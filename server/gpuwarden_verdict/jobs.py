"""Names of training jobs."""

from __future__ import annotations

from collections.abc import Iterable

_PREFERRED = ("slurm", "kubernetes", "torchrun")
"""Who gives a job its name where several do: the scheduler knows all of a job's nodes, a rendezvous
id may be that of a part of it."""


def job_name(jobs: Iterable[tuple[str, str]]) -> str:
    """The one name "KIND:ID" of the jobs that a GPU is said to run, "" for none.

    Of several of one kind (a GPU that is shared), the first by name: always the same one.

    Args:
        jobs: (kind, id) of each.
    """
    known = [(_PREFERRED.index(kind), id_) for kind, id_ in jobs if kind in _PREFERRED]
    if not known:
        return ""
    rank, id_ = min(known)
    return f"{_PREFERRED[rank]}:{id_}"
