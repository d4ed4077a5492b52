"""Checkpoints of jobs, one a row for each mount that each wrote to."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

job_checkpoints = Table(
    "job_checkpoints",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("job", String(300), nullable=False, comment="KIND:ID"),
    Column("mount", Text, nullable=False, comment="mount point, or local disks"),
    Column("begin", Float, nullable=False),
    Column("end", Float, nullable=False),
    Column("nodes", Integer, nullable=False, comment="that wrote"),
    Column("size_bytes", Float, nullable=False),
    Column("request_s", Float, comment="what a request took, NULL where not read"),
    Column("queue_share", Float, comment="of a request, the wait in the client"),
    Column("round_trip_share", Float, comment="of a request, network and server"),
    Column("rest_share", Float, comment="of a request, the client itself"),
    Column("lost_s", Float, comment="time that the job lost, NULL where not known"),
    Index("uq_job_checkpoints_job", "job", "mount", "begin", unique=True),
    Index("ix_job_checkpoints_begin", "begin"),
)
