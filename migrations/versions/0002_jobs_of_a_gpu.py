"""Jobs that run on a GPU, kept with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("gpus", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column(
                "jobs",
                sa.JSON(),
                server_default="[]",
                nullable=False,
                comment="[kind, id] of each job",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("gpus", schema=None) as batch_op:
        batch_op.drop_column("jobs")
