"""Diagnoses as they were answered, and the nodes that each is about."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, LargeBinary, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

diagnoses = Table(
    "diagnoses",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("id", String(32), nullable=False),
    Column("at", Float, nullable=False),
    Column("asked_by", String(255), nullable=False, comment="name of the key, or trigger"),
    Column("key_id", String(32), comment="NULL for the trigger"),
    Column("job", String(300), nullable=False, comment="KIND:ID, '' for the fleet"),
    Column("kind", String(32), nullable=False, comment="of the first culprit, or undecided"),
    Column("entity_kind", String(16), nullable=False, comment="of the first culprit, '' for none"),
    Column("entity", Text, nullable=False),
    Column("node_id", String(255), nullable=False, comment="'' for what sits in none"),
    Column("confidence", Float, nullable=False),
    Column("line", Text, nullable=False),
    Column("begin", Float, nullable=False),
    Column("end", Float, nullable=False),
    # Nodes in it have the names of its time.
    Column("body", LargeBinary, nullable=False, comment="DiagnosisView, JSON, zlib"),
    Index("ix_diagnoses_at", "at", "id"),
    Index("ix_diagnoses_job", "job", "at"),
    Index("uq_diagnoses_id", "id", unique=True),
)

diagnosis_nodes = Table(
    "diagnosis_nodes",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("diagnosis_id", String(32), nullable=False),
    Column("node_id", String(255), nullable=False, comment="of the job, hit, or blamed"),
    Index("ix_diagnosis_nodes_node_id", "node_id", "diagnosis_id"),
    Index("ix_diagnosis_nodes_diagnosis_id", "diagnosis_id"),
)
