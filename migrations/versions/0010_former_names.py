"""Names that nodes had before they were renamed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "former_names",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column(
            "until", sa.Float(), nullable=False, comment="when it was given up, epoch seconds"
        ),
        sa.Column("node_id", sa.String(), nullable=False, comment="what that node is called now"),
        sa.PrimaryKeyConstraint("name", "until", name=op.f("pk_former_names")),
    )
    op.create_index(op.f("ix_former_names_node_id"), "former_names", ["node_id"])


def downgrade() -> None:
    op.drop_index(op.f("ix_former_names_node_id"), table_name="former_names")
    op.drop_table("former_names")
