"""Tables of the learnt score: models, verdicts of people, trials, and what was seen of features.

JSON columns hold text that `msgspec.json` wrote.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

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

shadow_runs = Table(
    "shadow_runs",
    STATE,
    Column("kind", String(8), primary_key=True),
    Column("version", String(100), primary_key=True),
    Column("role", String(16), nullable=False, comment="as what it was scored last"),
    Column("begun_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("healthy_days", Float, nullable=False, comment="entities x days"),
    Column("digest", String(64), nullable=False, comment="SHA-256 of the model's MANIFEST.json"),
    Column("exclude_confidence", Float, nullable=False, comment="highest limit of its pools"),
)

shadow_exclusions = Table(
    "shadow_exclusions",
    STATE,
    Column("id", String(32), primary_key=True),
    Column("version", String(100), nullable=False),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, comment="NULL while it goes on"),
    Column("probability", Float, nullable=False, comment="highest"),
    Column("fault_class", String(16), nullable=False),
    Column("planes", Text, nullable=False, comment="separated by commas"),
)

Index(
    "ix_shadow_exclusions_version",
    shadow_exclusions.c.entity_kind,
    shadow_exclusions.c.version,
    shadow_exclusions.c.since,
)

trial_runs = Table(
    "trial_runs",
    STATE,
    Column("trial", String(16), primary_key=True, comment="backtest or shadow"),
    Column("kind", String(8), primary_key=True),
    Column("version", String(100), primary_key=True),
    Column("healthy_days", Float, nullable=False),
    Column("false_actions", Integer, nullable=False),
    Column("recorded_at", Float, nullable=False),
    Column("author", String(255), nullable=False),
    Column("digest", String(64), nullable=False, comment="SHA-256 of the model's MANIFEST.json"),
    Column("exclude_confidence", Float, nullable=False, comment="lowest limit it speaks for"),
)

feature_rows = Table(
    "feature_rows",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("why", String(16), nullable=False, comment="suspect, incident or healthy"),
    Column("schema_hash", String(64), nullable=False),
    Column("model_version", String(100), nullable=False, comment="what judged then, '' none"),
    Column("body", LargeBinary, nullable=False, comment="little-endian float32"),
    Column("share", Float, nullable=False, server_default="1", comment="chance to be kept"),
)

Index("ix_feature_rows_at", feature_rows.c.at)
