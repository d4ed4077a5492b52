"""The lease: which of several servers leads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

BIG_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "leases",
        sa.Column("id", BIG_INT, nullable=False),
        sa.Column("token", BIG_INT, nullable=False, comment="rises by one with every leader"),
        sa.Column(
            "holder", sa.String(), nullable=False, comment="random id of the leader's process"
        ),
        sa.Column(
            "url", sa.String(), nullable=True, comment="where the leader is reached, NULL not told"
        ),
        sa.Column(
            "taken_at", sa.Float(), nullable=False, comment="epoch seconds, the database's clock"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_table(
        "lease_renewals",
        sa.Column("id", BIG_INT, nullable=False),
        sa.Column("token", BIG_INT, nullable=False, comment="whose renewal it is"),
        sa.Column(
            "expires_at", sa.Float(), nullable=False, comment="epoch seconds, the database's clock"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lease_renewals")),
    )


def downgrade() -> None:
    op.drop_table("lease_renewals")
    op.drop_table("leases")
