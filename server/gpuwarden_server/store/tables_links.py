"""The secret that signs links in notifications."""

from __future__ import annotations

from sqlalchemy import Column, Integer, LargeBinary, Table

from gpuwarden_server.store.base import STATE

link_secret = Table(
    "link_secret",
    STATE,
    Column("id", Integer, primary_key=True),  # always 1
    Column("secret", LargeBinary, nullable=False, comment="32 random bytes"),
)
