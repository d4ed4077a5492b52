"""Tables of access beyond keys and audit: tokens with which nodes enrol themselves."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, Integer, String, Table

from gpuwarden_server.store.base import STATE

enrolment_tokens = Table(
    "enrolment_tokens",
    STATE,
    Column("id", String, primary_key=True),
    Column("token_hash", String, nullable=False, unique=True, comment="SHA-256, hex"),
    Column("name", String, nullable=False),
    Column("nodes", String, nullable=False, comment="pattern of the nodes that may enrol"),
    Column("uses", Integer, nullable=False, comment="how often it may be used"),
    Column("used", Integer, nullable=False, comment="how often it was"),
    Column("re_enrol", Boolean, nullable=False, comment="may replace a key that a node has"),
    Column("created_at", Float, nullable=False),
    Column("created_by", String, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("revoked_at", Float),
)
