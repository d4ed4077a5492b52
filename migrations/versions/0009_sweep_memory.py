"""What sweep detectors remember."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sweep_memory",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("saved_at", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="SweepMemory.export, zlib"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweep_memory")),
    )


def downgrade() -> None:
    op.drop_table("sweep_memory")
