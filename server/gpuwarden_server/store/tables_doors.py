"""Tables of the other doors: what remote write must know after a restart."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary, String, Table

from gpuwarden_server.store.base import STATE

door_marks = Table(
    "door_marks",
    STATE,
    Column("node_id", String, primary_key=True),
    Column("target", String, primary_key=True, comment="job/instance of the scrape"),
    Column("body", LargeBinary, nullable=False, comment="XIDs that stood there last, JSON"),
)
