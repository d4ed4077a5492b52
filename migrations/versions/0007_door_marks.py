"""What remote write must know after a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "door_marks",
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("target", sa.String(), nullable=False, comment="job/instance of the scrape"),
        sa.Column(
            "body", sa.LargeBinary(), nullable=False, comment="XIDs that stood there last, JSON"
        ),
        sa.PrimaryKeyConstraint("node_id", "target", name=op.f("pk_door_marks")),
    )


def downgrade() -> None:
    op.drop_table("door_marks")
