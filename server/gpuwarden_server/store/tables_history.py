"""Tables of history: roll-ups and readings as blobs of `gpuwarden_verdict.segments`."""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, LargeBinary, String, Table

from gpuwarden_server.store.base import HISTORY, BigInt

history_slabs = Table(
    "history_slabs",
    HISTORY,
    Column("id", BigInt, primary_key=True),
    Column("level", Integer, nullable=False, comment="0 readings, 1 minutes, 2 quarters"),
    Column("pack", Integer, nullable=False, comment="group of nodes, by a hash of their names"),
    Column("step_at", BigInt, nullable=False, comment="where the step begins, epoch seconds"),
    Column("body", LargeBinary, nullable=False, comment="one step of the pack's nodes"),
    Index("ix_history_slabs_place", "level", "pack", "step_at"),
)

history_segments = Table(
    "history_segments",
    HISTORY,
    Column("id", BigInt, primary_key=True),
    Column("level", Integer, nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("window_at", BigInt, nullable=False, comment="where it begins, epoch seconds"),
    Column("body", LargeBinary, nullable=False, comment="all steps of one node in the window"),
    Index("uq_history_segments_place", "node_id", "level", "window_at", unique=True),
    Index("ix_history_segments_age", "level", "window_at"),
)

open_minutes = Table(
    "open_minutes",
    HISTORY,
    Column("shard", Integer, primary_key=True, comment="as in checkpoints, written together"),
    Column("body", LargeBinary, nullable=False, comment="readings that are in no slab yet"),
)
