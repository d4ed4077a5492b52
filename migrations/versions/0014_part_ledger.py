"""The ledger of parts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "part_ledger",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("saved_at", sa.Float(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="PartLedger.export, zlib"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_part_ledger")),
    )


def downgrade() -> None:
    op.drop_table("part_ledger")
