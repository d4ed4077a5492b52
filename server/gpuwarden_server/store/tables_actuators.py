"""What was done outside: each step from its intent to what was read back, and what we hold."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Index, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

actuations = Table(
    "actuations",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("actuator", String(40), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("act", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("decisions", JSON, nullable=False),
    Column("jobs", JSON, nullable=False),
    Column("reason", Text, nullable=False),
    Column("before", String(16), nullable=False, comment="how the consumer held the node"),
    Column("after", String(16), comment="as read back"),
    Column("detail", Text, nullable=False, comment="what went wrong, or what was read back"),
    Column("begun_at", Float, nullable=False),
    Column("ended_at", Float),
    Index("ix_actuations_begun_at", "begun_at", "row"),
    Index("ix_actuations_node_id", "node_id"),
    Index("ix_actuations_open", "actuator", "phase"),
)

actuator_holds = Table(
    "actuator_holds",
    STATE,
    Column("actuator", String(40), primary_key=True),
    Column("node_id", String(255), primary_key=True),
    Column("act", String(16), nullable=False),
    Column("decisions", JSON, nullable=False),
    Column("moved_for", JSON, nullable=False),
    Column("at", Float, nullable=False),
)
