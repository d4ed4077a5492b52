"""What decisions rested on, and the policies that decided."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "decision_snapshots",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("decision_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("form", sa.Integer(), nullable=False, comment="version of the body"),
        sa.Column("policy_version", sa.String(length=64), nullable=False),
        sa.Column("model_version", sa.String(length=255), nullable=False),
        sa.Column(
            "body", sa.LargeBinary(), nullable=False, comment="DecisionSnapshot, msgpack, zlib"
        ),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_decision_snapshots")),
    )
    with op.batch_alter_table("decision_snapshots") as batch_op:
        batch_op.create_index("ix_decision_snapshots_at", ["at", "row"], unique=False)
        batch_op.create_index(
            "ix_decision_snapshots_decision_id", ["decision_id", "row"], unique=False
        )
    op.create_table(
        "policy_texts",
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False, comment="TOML"),
        sa.Column(
            "mode",
            sa.String(length=16),
            nullable=False,
            comment="of GPUWARDEN_MODE, empty for none",
        ),
        sa.Column("first_at", sa.Float(), nullable=False),
        sa.Column(
            "last_at", sa.Float(), nullable=False, comment="when a server last began with it"
        ),
        sa.PrimaryKeyConstraint("version", name=op.f("pk_policy_texts")),
    )


def downgrade() -> None:
    op.drop_table("policy_texts")
    op.drop_table("decision_snapshots")
