"""The secret that signs links in notifications."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "link_secret",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("secret", sa.LargeBinary(), nullable=False, comment="32 random bytes"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_link_secret")),
    )


def downgrade() -> None:
    op.drop_table("link_secret")
