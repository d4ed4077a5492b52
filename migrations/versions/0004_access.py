"""Scope, expiry and rotation of keys; tokens with which nodes enrol themselves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.add_column(sa.Column("expires_at", sa.Float(), comment="NULL never"))
        batch_op.add_column(
            sa.Column(
                "scope",
                sa.JSON(),
                server_default="{}",
                nullable=False,
                comment="what it is narrowed to",
            )
        )
        batch_op.add_column(
            sa.Column(
                "former_hash", sa.String(), comment="SHA-256 of the secret before the last rotation"
            )
        )
        batch_op.add_column(
            sa.Column(
                "former_until", sa.Float(), comment="until when the former secret is taken too"
            )
        )
    op.create_table(
        "enrolment_tokens",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("token_hash", sa.String(), nullable=False, comment="SHA-256, hex"),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column(
            "nodes", sa.String(), nullable=False, comment="pattern of the nodes that may enrol"
        ),
        sa.Column("uses", sa.Integer(), nullable=False, comment="how often it may be used"),
        sa.Column("used", sa.Integer(), nullable=False, comment="how often it was"),
        sa.Column(
            "re_enrol", sa.Boolean(), nullable=False, comment="may replace a key that a node has"
        ),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("token_hash"),
    )


def downgrade() -> None:
    op.drop_table("enrolment_tokens")
    with op.batch_alter_table("keys", schema=None) as batch_op:
        batch_op.drop_column("former_until")
        batch_op.drop_column("former_hash")
        batch_op.drop_column("scope")
        batch_op.drop_column("expires_at")
