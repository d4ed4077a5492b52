"""Runs and ends of jobs in state.db."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, insert, or_, select, update

from gpuwarden_server.jobs.domain import JobRun, Runs, ToldEnd
from gpuwarden_server.store.tables_jobs import job_ends, job_runs
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.job_ends import JobEnd

MOST_RUNS = 10_000


def save_runs(connection: Connection, node_id: str, runs: Runs, at: float) -> None:
    """Note what runs on a node from now on.

    Args:
        connection: Writing connection.
        node_id: The node.
        runs: What runs there; what ran there and is not among them has ended.
        at: Epoch seconds.
    """
    c = job_runs.c
    here = (c.node_id == node_id, c.until.is_(None))
    known = {row.job: row for row in connection.execute(select(job_runs).where(*here))}
    for job, gpus in runs.items():
        row = known.pop(job, None)
        if row is None:
            new = {"job": job, "node_id": node_id, "gpu_uuids": list(gpus), "since": at}
            connection.execute(insert(job_runs).values(new))
        elif not set(gpus) <= set(row.gpu_uuids):
            all_gpus = sorted({*row.gpu_uuids, *gpus})
            connection.execute(update(job_runs).where(c.id == row.id).values(gpu_uuids=all_gpus))
    ended = [row.id for row in known.values()]
    if ended:
        connection.execute(update(job_runs).where(c.id.in_(ended)).values(until=at))


def read_runs(connection: Connection, jobs: Sequence[str]) -> list[JobRun]:
    """Runs of jobs of these names, oldest first."""
    c = job_runs.c
    statement = select(job_runs).where(c.job.in_(jobs)).order_by(c.since, c.node_id)
    return [
        JobRun(row.job, row.node_id, tuple(row.gpu_uuids), row.since, row.until)
        for row in connection.execute(statement.limit(MOST_RUNS))
    ]


def read_runs_between(connection: Connection, begin: float, end: float) -> list[JobRun]:
    """Runs of all jobs within a time, oldest first; at most MOST_RUNS.

    Args:
        connection: Reads.
        begin: Epoch seconds.
        end: Epoch seconds.
    """
    c = job_runs.c
    lasts = or_(c.until.is_(None), c.until > begin)
    statement = select(job_runs).where(c.since < end, lasts).order_by(c.since, c.node_id)
    return [
        JobRun(row.job, row.node_id, tuple(row.gpu_uuids), row.since, row.until)
        for row in connection.execute(statement.limit(MOST_RUNS))
    ]


def read_ends(connection: Connection, jobs: Sequence[str]) -> list[ToldEnd]:
    """Ends of jobs of these names, oldest first."""
    c = job_ends.c
    statement = select(job_ends).where(c.job.in_(jobs)).order_by(c.ended_at, c.told_at)
    return [_end(row) for row in connection.execute(statement)]


def read_ends_since(connection: Connection, at: float) -> list[ToldEnd]:
    """Ends of all jobs from `at` (epoch seconds) on, oldest first."""
    c = job_ends.c
    statement = select(job_ends).where(c.ended_at >= at).order_by(c.ended_at, c.told_at)
    return [_end(row) for row in connection.execute(statement)]


def add_end(connection: Connection, told: ToldEnd) -> None:
    """Keep an end; the same one again changes nothing."""
    end = told.end
    statement = upsert(connection, job_ends).values(
        id=told.id,
        job=end.job,
        state=end.state,
        exit_code=end.exit_code,
        user=end.user,
        nodes=list(told.nodes),
        ended_at=end.at,
        told_at=told.told_at,
        author=told.author,
    )
    connection.execute(statement.on_conflict_do_nothing(index_elements=["id"]))


def _end(row: Row[Any]) -> ToldEnd:
    nodes = tuple(row.nodes)
    end = JobEnd(row.job, row.state, row.exit_code, row.user, row.ended_at, max(1, len(nodes)))
    return ToldEnd(row.id, end, nodes, row.told_at, row.author)
