"""Tables of the HTTP layer: answers kept for a repeated request."""

from __future__ import annotations

from sqlalchemy import JSON, Column, Float, Integer, LargeBinary, String, Table

from gpuwarden_server.store.base import STATE

idempotency_keys = Table(
    "idempotency_keys",
    STATE,
    Column("key_id", String, primary_key=True, comment="key of the caller"),
    Column("idempotency_key", String, primary_key=True, comment="as the caller chose it"),
    Column("fingerprint", String, nullable=False, comment="SHA-256 over method, path, body"),
    Column("run_id", String, nullable=False, comment="process that carried the request out"),
    Column("begun_at", Float, nullable=False, index=True, comment="epoch seconds"),
    Column("answer_code", Integer, comment="HTTP status, NULL until the outcome is known"),
    Column("headers", JSON, nullable=False),
    Column("body", LargeBinary, comment="NULL where it is not kept: a secret, or too large"),
)
