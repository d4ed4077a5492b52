"""A planned leave may follow what a cloud announces; what it follows is kept with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("pins") as batch_op:
        batch_op.add_column(
            sa.Column(
                "source",
                sa.String(255),
                nullable=False,
                server_default="",
                comment="what a leave follows; '' for a person's, and once it is followed no more",
            )
        )
        batch_op.create_index("ix_pins_node_id", ["node_id"])


def downgrade() -> None:
    with op.batch_alter_table("pins") as batch_op:
        batch_op.drop_index("ix_pins_node_id")
        batch_op.drop_column("source")
