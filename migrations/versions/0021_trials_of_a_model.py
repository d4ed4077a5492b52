"""Which file a trial tried and by which limit, and how likely a row of features was kept.

What was tried before says neither, so that it opens no gate: it is tried anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_TRIED = ("shadow_runs", "trial_runs")


def upgrade() -> None:
    op.execute("UPDATE shadow_exclusions SET until = since WHERE until IS NULL")
    for table in _TRIED:
        op.execute(f"DELETE FROM {table}")
        limit = (
            "highest limit of its pools" if table == "shadow_runs" else "lowest limit it speaks for"
        )
        with op.batch_alter_table(table) as batch_op:
            batch_op.add_column(
                sa.Column(
                    "digest",
                    sa.String(64),
                    nullable=False,
                    comment="SHA-256 of the model's MANIFEST.json",
                )
            )
            batch_op.add_column(
                sa.Column("exclude_confidence", sa.Float(), nullable=False, comment=limit)
            )
    with op.batch_alter_table("feature_rows") as batch_op:
        batch_op.add_column(
            sa.Column(
                "share",
                sa.Float(),
                nullable=False,
                server_default="1",
                comment="chance to be kept",
            )
        )


def downgrade() -> None:
    with op.batch_alter_table("feature_rows") as batch_op:
        batch_op.drop_column("share")
    for table in _TRIED:
        with op.batch_alter_table(table) as batch_op:
            batch_op.drop_column("exclude_confidence")
            batch_op.drop_column("digest")
