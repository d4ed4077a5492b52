"""What decisions rested on, and the policies that decided: to judge again what was judged."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

decision_snapshots = Table(
    "decision_snapshots",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("decision_id", String(32), nullable=False),
    Column("at", Float, nullable=False),
    Column("form", Integer, nullable=False, comment="version of the body"),
    Column("policy_version", String(64), nullable=False),
    Column("model_version", String(255), nullable=False),
    # Nodes in it have the names of its time.
    Column("body", LargeBinary, nullable=False, comment="DecisionSnapshot, msgpack, zlib"),
    Index("ix_decision_snapshots_decision_id", "decision_id", "row"),
    Index("ix_decision_snapshots_at", "at", "row"),
)

policy_texts = Table(
    "policy_texts",
    STATE,
    Column("version", String(64), primary_key=True),
    Column("text", Text, nullable=False, comment="TOML"),
    Column("mode", String(16), nullable=False, comment="of GPUWARDEN_MODE, empty for none"),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False, comment="when a server last began with it"),
)
