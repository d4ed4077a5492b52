"""Checkpoints of jobs in state.db."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from sqlalchemy import Connection, delete, insert, select

from gpuwarden_server.store.tables_checkpoints import job_checkpoints
from gpuwarden_verdict.diagnosis.saves import Save

_COLUMNS = [job_checkpoints.c[name] for name in Save.__dataclass_fields__]


def save_all(connection: Connection, saves: Iterable[Save]) -> None:
    """Keep checkpoints; what was seen of the same time before is replaced."""
    c = job_checkpoints.c
    for one in saves:
        same = (c.job == one.job, c.mount == one.mount, c.begin < one.end, c.end > one.begin)
        connection.execute(delete(job_checkpoints).where(*same))
        connection.execute(insert(job_checkpoints).values(**asdict(one)))


def read_saves(
    connection: Connection,
    jobs: tuple[str, ...] | None,
    mount: str | None,
    begin: float,
    end: float,
    limit: int,
) -> list[Save]:
    """Checkpoints, newest first.

    Args:
        connection: Reads.
        jobs: Names that the job may have; None takes all jobs.
        mount: Mount point; None takes all.
        begin: Epoch seconds; begun then or later.
        end: Epoch seconds; begun before.
        limit: At most so many.
    """
    c = job_checkpoints.c
    where = [c.begin >= begin, c.begin < end]
    if jobs is not None:
        where.append(c.job.in_(jobs))
    if mount is not None:
        where.append(c.mount == mount)
    statement = select(*_COLUMNS).where(*where).order_by(c.begin.desc(), c.row.desc())
    return [Save(*row) for row in connection.execute(statement.limit(limit))]
