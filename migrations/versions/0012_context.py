"""What people cleared, and under which cause an incident was told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "clearances",
        sa.Column("entity_kind", sa.String(length=8), nullable=False),
        sa.Column("entity", sa.String(length=255), nullable=False),
        sa.Column("detector", sa.String(length=255), nullable=False),
        sa.Column("node_id", sa.String(length=255), nullable=False),
        sa.Column("severity", sa.String(length=8), nullable=False),
        sa.Column("score", sa.Float(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("entity_kind", "entity", "detector", name=op.f("pk_clearances")),
    )
    with op.batch_alter_table("told_incidents") as batch_op:
        batch_op.add_column(
            sa.Column("parent_id", sa.String(length=32), nullable=False, server_default="")
        )


def downgrade() -> None:
    with op.batch_alter_table("told_incidents") as batch_op:
        batch_op.drop_column("parent_id")
    op.drop_table("clearances")
