"""A spare works for one node at a time: of leases that hold of one spare the newest goes on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_NEWER = """(SELECT max(newer.{column}) FROM standby_leases AS newer
    WHERE newer.node_id = standby_leases.node_id AND newer.ended_at IS NULL)"""


def upgrade() -> None:
    op.execute(
        f"UPDATE standby_leases SET ended_at = {_NEWER.format(column='begun_at')}, "
        "ended_by = 'gpuwarden', ended_why = 'a newer lease of the same spare holds' "
        f"WHERE ended_at IS NULL AND epoch < {_NEWER.format(column='epoch')}"
    )
    with op.batch_alter_table("standby_leases") as batch_op:
        batch_op.create_index(
            "uq_standby_leases_open",
            ["node_id"],
            unique=True,
            sqlite_where=sa.text("ended_at IS NULL"),
            postgresql_where=sa.text("ended_at IS NULL"),
        )


def downgrade() -> None:
    with op.batch_alter_table("standby_leases") as batch_op:
        batch_op.drop_index("uq_standby_leases_open")
