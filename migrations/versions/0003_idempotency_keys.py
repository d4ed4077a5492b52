"""Answers kept for requests that are repeated under an idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("key_id", sa.String(), nullable=False, comment="key of the caller"),
        sa.Column("idempotency_key", sa.String(), nullable=False, comment="as the caller chose it"),
        sa.Column(
            "fingerprint", sa.String(), nullable=False, comment="SHA-256 over method, path, body"
        ),
        sa.Column(
            "run_id", sa.String(), nullable=False, comment="process that carried the request out"
        ),
        sa.Column("begun_at", sa.Float(), nullable=False, comment="epoch seconds"),
        sa.Column(
            "answer_code",
            sa.Integer(),
            nullable=True,
            comment="HTTP status, NULL until the outcome is known",
        ),
        sa.Column("headers", sa.JSON(), nullable=False),
        sa.Column(
            "body",
            sa.LargeBinary(),
            nullable=True,
            comment="NULL where it is not kept: a secret, or too large",
        ),
        sa.PrimaryKeyConstraint("key_id", "idempotency_key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_begun_at"), "idempotency_keys", ["begun_at"])


def downgrade() -> None:
    op.drop_index(op.f("ix_idempotency_keys_begun_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
