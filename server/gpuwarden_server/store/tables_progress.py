"""What running jobs told of their steps, a row a minute."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, String, Table

from gpuwarden_server.store.base import STATE, BigInt

job_progress = Table(
    "job_progress",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("job", String(300), nullable=False, comment="KIND:ID"),
    Column("at", Float, nullable=False, comment="begin of the minute"),
    Column("told", Integer, nullable=False, comment="how often it told"),
    Column("last_step", BigInt, nullable=False),
    Column("step_seconds", Float, comment="mean, NULL where nobody said"),
    Column("loss", Float, comment="last finite one, NULL for none"),
    Column("not_finite", Integer, nullable=False, comment="losses that were not finite"),
    Index("uq_job_progress_job", "job", "at", unique=True),
    Index("ix_job_progress_at", "at"),
)
