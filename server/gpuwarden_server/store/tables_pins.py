"""People's standing words about nodes and GPUs: pins and planned leaves."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Index, String, Table, Text

from gpuwarden_server.store.base import STATE

pins = Table(
    "pins",
    STATE,
    Column("id", String(32), primary_key=True),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("kind", String(8), nullable=False, comment="exclude or allow"),
    Column("author", String(255), nullable=False),
    Column("reason", Text, nullable=False),
    Column("set_at", Float, nullable=False),
    Column("starts_at", Float, comment="NULL: at once"),
    Column("expires_at", Float, comment="NULL: never"),
    Column("leave", Boolean, nullable=False, comment="told ahead of its time"),
    Column("check_asked", Boolean, nullable=False, comment="ends over a passed check only"),
    Column("window_id", String(32), nullable=False, comment="maintenance window, or none"),
    Column(
        "source",
        String(255),
        nullable=False,
        server_default="",
        comment="what a leave follows; '' for a person's, and once it is followed no more",
    ),
    Column("ended_at", Float, comment="NULL while it holds or will"),
    Index("ix_pins_ended_at", "ended_at"),
    Index("ix_pins_node_id", "node_id"),
)
