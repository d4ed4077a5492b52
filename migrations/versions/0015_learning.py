"""Which model is used, models that were added, and people's verdicts on incidents."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_choices",
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("body", sa.Text(), nullable=False, comment="promoted, former, challenger"),
        sa.PrimaryKeyConstraint("kind", name=op.f("pk_model_choices")),
    )
    op.create_table(
        "model_versions",
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False, comment="SHA-256 of its MANIFEST.json"),
        sa.Column("added_at", sa.Float(), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column(
            "body", sa.LargeBinary(), nullable=False, comment="msgpack: content by file name"
        ),
        sa.PrimaryKeyConstraint("kind", "version", name=op.f("pk_model_versions")),
    )
    op.create_table(
        "incident_verdicts",
        sa.Column("incident_id", sa.String(32), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("incident_id", name=op.f("pk_incident_verdicts")),
    )


def downgrade() -> None:
    op.drop_table("incident_verdicts")
    op.drop_table("model_versions")
    op.drop_table("model_choices")
