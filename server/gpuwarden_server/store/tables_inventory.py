"""Table of the fleet inventory: what each source says of each node."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Integer, String, Table

from gpuwarden_server.store.base import STATE

inventory = Table(
    "inventory",
    STATE,
    Column("source", String, primary_key=True, comment="file, slurm or kubernetes"),
    Column("node_id", String, primary_key=True),
    Column("rack", String, nullable=False, comment="'' where it is not said, as below"),
    Column("leaf", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("mounts", JSON, nullable=False),
    Column("gpus_expected", Integer, comment="NULL where it is not said"),
    Column("labels", JSON, nullable=False),
    Column("updated_at", Float, nullable=False),
)
