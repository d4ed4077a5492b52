"""Checkpoints of jobs are kept, so that their trend over weeks can be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "job_checkpoints",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("job", sa.String(length=300), nullable=False, comment="KIND:ID"),
        sa.Column("mount", sa.Text(), nullable=False, comment="mount point, or local disks"),
        sa.Column("begin", sa.Float(), nullable=False),
        sa.Column("end", sa.Float(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False, comment="that wrote"),
        sa.Column("size_bytes", sa.Float(), nullable=False),
        sa.Column("request_s", sa.Float(), comment="what a request took, NULL where not read"),
        sa.Column("queue_share", sa.Float(), comment="of a request, the wait in the client"),
        sa.Column("round_trip_share", sa.Float(), comment="of a request, network and server"),
        sa.Column("rest_share", sa.Float(), comment="of a request, the client itself"),
        sa.Column("lost_s", sa.Float(), comment="time that the job lost, NULL where not known"),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_job_checkpoints")),
    )
    with op.batch_alter_table("job_checkpoints") as batch_op:
        batch_op.create_index("uq_job_checkpoints_job", ["job", "mount", "begin"], unique=True)
        batch_op.create_index("ix_job_checkpoints_begin", ["begin"], unique=False)


def downgrade() -> None:
    op.drop_table("job_checkpoints")
