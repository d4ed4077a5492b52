"""Tables of jobs: where they ran, and how they ended."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Index, Integer, String, Table, text

from gpuwarden_server.store.base import STATE, BigInt

job_runs = Table(
    "job_runs",
    STATE,
    Column("id", BigInt, primary_key=True),
    Column("job", String, nullable=False, comment="KIND:ID"),
    Column("node_id", String, nullable=False),
    Column("gpu_uuids", JSON, nullable=False, comment="all that it had there"),
    Column("since", Float, nullable=False, comment="when an inventory first named it"),
    Column("until", Float, comment="when one no longer did, NULL while it runs"),
)

Index("ix_job_runs_job", job_runs.c.job)
Index(
    "ix_job_runs_one_open",
    job_runs.c.node_id,
    job_runs.c.job,
    unique=True,
    sqlite_where=text("until IS NULL"),
    postgresql_where=text("until IS NULL"),
)
Index("ix_job_runs_until", job_runs.c.until)

job_ends = Table(
    "job_ends",
    STATE,
    Column("id", String, primary_key=True),
    Column("job", String, nullable=False, comment="KIND:ID"),
    Column("state", String, nullable=False),
    Column("exit_code", Integer, comment="NULL where nobody said"),
    Column("user", String, nullable=False, comment="'' unknown"),
    Column("nodes", JSON, nullable=False),
    Column("ended_at", Float, nullable=False),
    Column("told_at", Float, nullable=False),
    Column("author", String, nullable=False, comment="name of the key"),
)

Index("ix_job_ends_job", job_ends.c.job, job_ends.c.ended_at)
Index("ix_job_ends_ended", job_ends.c.ended_at)
