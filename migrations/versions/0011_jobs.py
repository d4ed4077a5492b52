"""Where jobs ran, and how they ended."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "job_runs",
        sa.Column("id", _BIG, nullable=False),
        sa.Column("job", sa.String(), nullable=False, comment="KIND:ID"),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("gpu_uuids", sa.JSON(), nullable=False, comment="all that it had there"),
        sa.Column("since", sa.Float(), nullable=False, comment="when an inventory first named it"),
        sa.Column(
            "until",
            sa.Float(),
            nullable=True,
            comment="when one no longer did, NULL while it runs",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_runs")),
    )
    with op.batch_alter_table("job_runs") as batch_op:
        batch_op.create_index("ix_job_runs_job", ["job"], unique=False)
        batch_op.create_index("ix_job_runs_until", ["until"], unique=False)
        batch_op.create_index(
            "ix_job_runs_one_open",
            ["node_id", "job"],
            unique=True,
            sqlite_where=sa.text("until IS NULL"),
            postgresql_where=sa.text("until IS NULL"),
        )
    op.create_table(
        "job_ends",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False, comment="KIND:ID"),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True, comment="NULL where nobody said"),
        sa.Column("user", sa.String(), nullable=False, comment="'' unknown"),
        sa.Column("nodes", sa.JSON(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=False),
        sa.Column("told_at", sa.Float(), nullable=False),
        sa.Column("author", sa.String(), nullable=False, comment="name of the key"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_ends")),
    )
    with op.batch_alter_table("job_ends") as batch_op:
        batch_op.create_index("ix_job_ends_job", ["job", "ended_at"], unique=False)
        batch_op.create_index("ix_job_ends_ended", ["ended_at"], unique=False)


def downgrade() -> None:
    op.drop_table("job_ends")
    op.drop_table("job_runs")
