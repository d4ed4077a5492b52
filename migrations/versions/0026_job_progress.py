"""What running jobs tell of their steps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "job_progress",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False, comment="KIND:ID"),
        sa.Column("at", sa.Float(), nullable=False, comment="begin of the minute"),
        sa.Column("told", sa.Integer(), nullable=False, comment="how often it told"),
        sa.Column("last_step", _BIG, nullable=False),
        sa.Column("step_seconds", sa.Float(), comment="mean, NULL where nobody said"),
        sa.Column("loss", sa.Float(), comment="last finite one, NULL for none"),
        sa.Column(
            "not_finite", sa.Integer(), nullable=False, comment="losses that were not finite"
        ),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_job_progress")),
    )
    with op.batch_alter_table("job_progress") as batch_op:
        batch_op.create_index("uq_job_progress_job", ["job", "at"], unique=True)
        batch_op.create_index("ix_job_progress_at", ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("job_progress")
