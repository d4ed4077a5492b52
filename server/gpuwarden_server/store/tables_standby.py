"""The book of spares: who stands by, and every lease that there ever was."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, String, Table, Text, text

from gpuwarden_server.store.base import STATE, BigInt

standbys = Table(
    "standbys",
    STATE,
    Column("node_id", String(255), primary_key=True),
    Column("pool", String(255), nullable=False, comment="whose nodes it may replace"),
    Column("state", String(16), nullable=False),
    Column("added_at", Float, nullable=False),
    Column("added_by", String(255), nullable=False),
    Column("proven_at", Float, comment="when a person vouched for it, NULL never"),
    Column("reason", Text, nullable=False),
)

standby_leases = Table(
    "standby_leases",
    STATE,
    Column("epoch", BigInt, primary_key=True, autoincrement=False),
    Column("node_id", String(255), nullable=False, comment="the spare"),
    Column("leaver", String(255), nullable=False, comment="the node that it works for"),
    Column("pool", String(255), nullable=False),
    Column("decision_id", String(32), nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("begun_at", Float, nullable=False),
    Column("expires_at", Float, comment="NULL: until it is released"),
    Column("ended_at", Float, comment="NULL while it holds"),
    Column("ended_by", String(255), nullable=False),
    Column("ended_why", Text, nullable=False),
    Index("ix_standby_leases_ended_at", "ended_at"),
    # A spare works for one node at a time, kept by the database itself.
    Index(
        "uq_standby_leases_open",
        "node_id",
        unique=True,
        sqlite_where=text("ended_at IS NULL"),
        postgresql_where=text("ended_at IS NULL"),
    ),
)
