"""Until when a cleared reading went on, so that a restart revives no clear of old."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("clearances") as batch_op:
        batch_op.add_column(
            sa.Column(
                "seen_at",
                sa.Float(),
                nullable=False,
                server_default="0",
                comment="until when it went on, epoch seconds",
            )
        )
    # Nobody noted it: what was cleared was seen when it was cleared.
    rows = sa.table("clearances", sa.column("at"), sa.column("seen_at"))
    op.execute(sa.update(rows).values(seen_at=rows.c.at))
    with op.batch_alter_table("clearances") as batch_op:
        batch_op.alter_column("seen_at", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("clearances") as batch_op:
        batch_op.drop_column("seen_at")
