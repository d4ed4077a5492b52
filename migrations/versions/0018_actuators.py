"""What was done at schedulers, folders and commands, and what is held there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "actuations",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("actuator", sa.String(length=40), nullable=False),
        sa.Column("node_id", sa.String(length=255), nullable=False),
        sa.Column("act", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("decisions", sa.JSON(), nullable=False),
        sa.Column("jobs", sa.JSON(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "before",
            sa.String(length=16),
            nullable=False,
            comment="how the consumer held the node",
        ),
        sa.Column("after", sa.String(length=16), nullable=True, comment="as read back"),
        sa.Column(
            "detail", sa.Text(), nullable=False, comment="what went wrong, or what was read back"
        ),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_actuations")),
    )
    with op.batch_alter_table("actuations") as batch_op:
        batch_op.create_index("ix_actuations_begun_at", ["begun_at", "row"], unique=False)
        batch_op.create_index("ix_actuations_node_id", ["node_id"], unique=False)
        batch_op.create_index("ix_actuations_open", ["actuator", "phase"], unique=False)
    op.create_table(
        "actuator_holds",
        sa.Column("actuator", sa.String(length=40), nullable=False),
        sa.Column("node_id", sa.String(length=255), nullable=False),
        sa.Column("act", sa.String(length=16), nullable=False),
        sa.Column("decisions", sa.JSON(), nullable=False),
        sa.Column("moved_for", sa.JSON(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("actuator", "node_id", name=op.f("pk_actuator_holds")),
    )


def downgrade() -> None:
    op.drop_table("actuator_holds")
    op.drop_table("actuations")
