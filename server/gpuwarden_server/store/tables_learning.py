"""Tables of the learnt score: which model is used, models that were added, people's verdicts.

JSON columns hold text that `msgspec.json` wrote.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, LargeBinary, String, Table, Text

from gpuwarden_server.store.base import STATE

model_choices = Table(
    "model_choices",
    STATE,
    Column("kind", String(8), primary_key=True),
    Column("body", Text, nullable=False, comment="promoted, former, challenger"),
)

model_versions = Table(
    "model_versions",
    STATE,
    Column("kind", String(8), primary_key=True),
    Column("version", String(100), primary_key=True),
    Column("digest", String(64), nullable=False, comment="SHA-256 of its MANIFEST.json"),
    Column("added_at", Float, nullable=False),
    Column("author", String(255), nullable=False),
    Column("body", LargeBinary, nullable=False, comment="msgpack: content by file name"),
)

incident_verdicts = Table(
    "incident_verdicts",
    STATE,
    Column("incident_id", String(32), primary_key=True),
    Column("verdict", String(16), nullable=False),
    Column("note", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("at", Float, nullable=False),
)
