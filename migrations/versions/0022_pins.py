"""Pins and planned leaves; what is planned, in the feed's log."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pins",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("entity_kind", sa.String(8), nullable=False),
        sa.Column("entity", sa.String(255), nullable=False),
        sa.Column("node_id", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False, comment="exclude or allow"),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_at", sa.Float(), nullable=False),
        sa.Column("starts_at", sa.Float(), nullable=True, comment="NULL: at once"),
        sa.Column("expires_at", sa.Float(), nullable=True, comment="NULL: never"),
        sa.Column("leave", sa.Boolean(), nullable=False, comment="told ahead of its time"),
        sa.Column(
            "check_asked", sa.Boolean(), nullable=False, comment="ends over a passed check only"
        ),
        sa.Column(
            "window_id", sa.String(32), nullable=False, comment="maintenance window, or none"
        ),
        sa.Column("ended_at", sa.Float(), nullable=True, comment="NULL while it holds or will"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
    with op.batch_alter_table("pins") as batch_op:
        batch_op.create_index("ix_pins_ended_at", ["ended_at"], unique=False)
    with op.batch_alter_table("feed_log") as batch_op:
        batch_op.add_column(sa.Column("planned", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("feed_log") as batch_op:
        batch_op.drop_column("planned")
    op.drop_table("pins")
