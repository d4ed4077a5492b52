"""Which node an incident was told of, so that a change of it is told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("told_incidents") as batch_op:
        batch_op.add_column(sa.Column("told_node", sa.String(), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("told_incidents") as batch_op:
        batch_op.drop_column("told_node")
