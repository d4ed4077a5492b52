"""Spares, and their leases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "standbys",
        sa.Column("node_id", sa.String(length=255), nullable=False),
        sa.Column(
            "pool", sa.String(length=255), nullable=False, comment="whose nodes it may replace"
        ),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("added_at", sa.Float(), nullable=False),
        sa.Column("added_by", sa.String(length=255), nullable=False),
        sa.Column(
            "proven_at",
            sa.Float(),
            nullable=True,
            comment="when a person vouched for it, NULL never",
        ),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("node_id", name=op.f("pk_standbys")),
    )
    op.create_table(
        "standby_leases",
        sa.Column("epoch", _BIG, autoincrement=False, nullable=False),
        sa.Column("node_id", sa.String(length=255), nullable=False, comment="the spare"),
        sa.Column(
            "leaver", sa.String(length=255), nullable=False, comment="the node that it works for"
        ),
        sa.Column("pool", sa.String(length=255), nullable=False),
        sa.Column("decision_id", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=255), nullable=False),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=True, comment="NULL: until it is released"),
        sa.Column("ended_at", sa.Float(), nullable=True, comment="NULL while it holds"),
        sa.Column("ended_by", sa.String(length=255), nullable=False),
        sa.Column("ended_why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("epoch", name=op.f("pk_standby_leases")),
    )
    with op.batch_alter_table("standby_leases") as batch_op:
        batch_op.create_index("ix_standby_leases_ended_at", ["ended_at"], unique=False)


def downgrade() -> None:
    op.drop_table("standby_leases")
    op.drop_table("standbys")
