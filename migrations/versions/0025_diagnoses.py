"""Diagnoses are kept, with who asked and which nodes they are about."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "diagnoses",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column(
            "asked_by",
            sa.String(length=255),
            nullable=False,
            comment="name of the key, or trigger",
        ),
        sa.Column("key_id", sa.String(length=32), comment="NULL for the trigger"),
        sa.Column(
            "job", sa.String(length=300), nullable=False, comment="KIND:ID, '' for the fleet"
        ),
        sa.Column(
            "kind",
            sa.String(length=32),
            nullable=False,
            comment="of the first culprit, or undecided",
        ),
        sa.Column(
            "entity_kind",
            sa.String(length=16),
            nullable=False,
            comment="of the first culprit, '' for none",
        ),
        sa.Column("entity", sa.Text(), nullable=False),
        sa.Column(
            "node_id",
            sa.String(length=255),
            nullable=False,
            comment="'' for what sits in none",
        ),
        sa.Column("confidence", sa.Float(), nullable=False),
        sa.Column("line", sa.Text(), nullable=False),
        sa.Column("begin", sa.Float(), nullable=False),
        sa.Column("end", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="DiagnosisView, JSON, zlib"),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_diagnoses")),
    )
    with op.batch_alter_table("diagnoses") as batch_op:
        batch_op.create_index("ix_diagnoses_at", ["at", "id"], unique=False)
        batch_op.create_index("ix_diagnoses_job", ["job", "at"], unique=False)
        batch_op.create_index("uq_diagnoses_id", ["id"], unique=True)
    op.create_table(
        "diagnosis_nodes",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("diagnosis_id", sa.String(length=32), nullable=False),
        sa.Column(
            "node_id", sa.String(length=255), nullable=False, comment="of the job, hit, or blamed"
        ),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_diagnosis_nodes")),
    )
    with op.batch_alter_table("diagnosis_nodes") as batch_op:
        batch_op.create_index(
            "ix_diagnosis_nodes_node_id", ["node_id", "diagnosis_id"], unique=False
        )
        batch_op.create_index("ix_diagnosis_nodes_diagnosis_id", ["diagnosis_id"], unique=False)


def downgrade() -> None:
    op.drop_table("diagnosis_nodes")
    op.drop_table("diagnoses")
