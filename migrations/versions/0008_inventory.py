"""What files, Slurm and Kubernetes say of nodes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "inventory",
        sa.Column("source", sa.String(), nullable=False, comment="file, slurm or kubernetes"),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("rack", sa.String(), nullable=False, comment="'' where it is not said, as below"),
        sa.Column("leaf", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("mounts", sa.JSON(), nullable=False),
        sa.Column(
            "gpus_expected", sa.Integer(), nullable=True, comment="NULL where it is not said"
        ),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("source", "node_id", name=op.f("pk_inventory")),
    )


def downgrade() -> None:
    op.drop_table("inventory")
