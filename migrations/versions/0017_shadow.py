"""What scores would have excluded, trials of models, and rows of features to learn from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "shadow_runs",
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("role", sa.String(16), nullable=False, comment="as what it was scored last"),
        sa.Column("begun_at", sa.Float(), nullable=False),
        sa.Column("seen_at", sa.Float(), nullable=False),
        sa.Column("healthy_days", sa.Float(), nullable=False, comment="entities x days"),
        sa.PrimaryKeyConstraint("kind", "version", name=op.f("pk_shadow_runs")),
    )
    op.create_table(
        "shadow_exclusions",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("entity_kind", sa.String(8), nullable=False),
        sa.Column("entity", sa.String(255), nullable=False),
        sa.Column("node_id", sa.String(255), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("until", sa.Float(), nullable=True, comment="NULL while it goes on"),
        sa.Column("probability", sa.Float(), nullable=False, comment="highest"),
        sa.Column("fault_class", sa.String(16), nullable=False),
        sa.Column("planes", sa.Text(), nullable=False, comment="separated by commas"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shadow_exclusions")),
    )
    with op.batch_alter_table("shadow_exclusions") as batch_op:
        batch_op.create_index(
            "ix_shadow_exclusions_version", ["entity_kind", "version", "since"], unique=False
        )
    op.create_table(
        "trial_runs",
        sa.Column("trial", sa.String(16), nullable=False, comment="backtest or shadow"),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("version", sa.String(100), nullable=False),
        sa.Column("healthy_days", sa.Float(), nullable=False),
        sa.Column("false_actions", sa.Integer(), nullable=False),
        sa.Column("recorded_at", sa.Float(), nullable=False),
        sa.Column("author", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("trial", "kind", "version", name=op.f("pk_trial_runs")),
    )
    op.create_table(
        "feature_rows",
        sa.Column("row", _BIG, autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("entity_kind", sa.String(8), nullable=False),
        sa.Column("entity", sa.String(255), nullable=False),
        sa.Column("node_id", sa.String(255), nullable=False),
        sa.Column("why", sa.String(16), nullable=False, comment="suspect, incident or healthy"),
        sa.Column("schema_hash", sa.String(64), nullable=False),
        sa.Column(
            "model_version",
            sa.String(100),
            nullable=False,
            comment="what judged then, '' none",
        ),
        sa.Column("body", sa.LargeBinary(), nullable=False, comment="little-endian float32"),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_feature_rows")),
    )
    with op.batch_alter_table("feature_rows") as batch_op:
        batch_op.create_index("ix_feature_rows_at", ["at"], unique=False)


def downgrade() -> None:
    op.drop_table("feature_rows")
    op.drop_table("trial_runs")
    op.drop_table("shadow_exclusions")
    op.drop_table("shadow_runs")
