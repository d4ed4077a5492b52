"""Table of the names that nodes had before."""

from __future__ import annotations

from sqlalchemy import Column, Float, String, Table

from gpuwarden_server.store.base import STATE

former_names = Table(
    "former_names",
    STATE,
    Column("name", String, primary_key=True),
    Column("until", Float, primary_key=True, comment="when it was given up, epoch seconds"),
    Column("node_id", String, nullable=False, index=True, comment="what that node is called now"),
)
