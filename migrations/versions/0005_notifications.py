"""Notifications: endpoints with queues of their own, cases, silences."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


BIG_INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "notify_cases",
        sa.Column("endpoint", sa.String(length=64), nullable=False),
        sa.Column("case_key", sa.String(length=255), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=False),
        sa.Column("joined_at", sa.Float(), nullable=False),
        sa.Column("overflow", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("external", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "case_key", name=op.f("pk_notify_cases")),
    )
    with op.batch_alter_table("notify_cases", schema=None) as batch_op:
        batch_op.create_index(
            "ix_notify_cases_phase", ["endpoint", "phase", "joined_at"], unique=False
        )

    op.create_table(
        "notify_lanes",
        sa.Column("lane", sa.String(length=80), nullable=False),
        sa.Column("sequence", BIG_INT, nullable=False),
        sa.Column("failing_since", sa.Float(), nullable=True),
        sa.Column("disabled_at", sa.Float(), nullable=True),
        sa.Column("disabled_why", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("lane", name=op.f("pk_notify_lanes")),
    )
    op.create_table(
        "notify_members",
        sa.Column("endpoint", sa.String(length=64), nullable=False),
        sa.Column("subject", sa.String(length=32), nullable=False),
        sa.Column("case_key", sa.String(length=255), nullable=False),
        sa.Column("standing", sa.String(length=16), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "subject", name=op.f("pk_notify_members")),
    )
    with op.batch_alter_table("notify_members", schema=None) as batch_op:
        batch_op.create_index("ix_notify_members_case_key", ["endpoint", "case_key"], unique=False)
        batch_op.create_index(
            "ix_notify_members_standing", ["endpoint", "standing", "since"], unique=False
        )

    op.create_table(
        "notify_messages",
        sa.Column("row", BIG_INT, autoincrement=True, nullable=False),
        sa.Column("lane", sa.String(length=80), nullable=False),
        sa.Column("message_id", sa.String(length=160), nullable=False),
        sa.Column("sequence", BIG_INT, nullable=False),
        sa.Column("kind", sa.String(length=48), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("since", sa.Float(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("refusals", sa.Integer(), nullable=False),
        sa.Column("next_attempt_at", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("row", name=op.f("pk_notify_messages")),
    )
    with op.batch_alter_table("notify_messages", schema=None) as batch_op:
        batch_op.create_index(
            "ix_notify_messages_lane_phase", ["lane", "phase", "next_attempt_at"], unique=False
        )
        batch_op.create_index(
            "ix_notify_messages_lane_subject", ["lane", "subject", "phase"], unique=False
        )
        batch_op.create_index(
            "uq_notify_messages_lane_message_id", ["lane", "message_id"], unique=True
        )

    op.create_table(
        "notify_position",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("outbox_row", BIG_INT, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notify_position")),
    )
    op.create_table(
        "silences",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("matchers", sa.Text(), nullable=False),
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expired_at", sa.Float(), nullable=True),
        sa.Column("expired_by", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    with op.batch_alter_table("silences", schema=None) as batch_op:
        batch_op.create_index("ix_silences_ends_at", ["ends_at"], unique=False)

    op.create_table(
        "told_incidents",
        sa.Column("incident_id", sa.String(length=32), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("fault_class", sa.String(length=16), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("updates", BIG_INT, nullable=False),
        sa.PrimaryKeyConstraint("incident_id", name=op.f("pk_told_incidents")),
    )
    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("lane", sa.String(length=80), server_default="webhook", nullable=False)
        )
        batch_op.alter_column(
            "message_id",
            existing_type=sa.VARCHAR(length=96),
            type_=sa.String(length=160),
            existing_nullable=False,
        )
        batch_op.create_index("ix_deliveries_at", ["at"], unique=False)

    # What waits is planned anew, from the oldest on; what was given up stays on record only.
    op.execute("DELETE FROM outbox WHERE phase = 'given_up'")
    op.execute(
        "INSERT INTO notify_position (id, outbox_row) SELECT 1, coalesce("
        "(SELECT min(\"row\") - 1 FROM outbox WHERE phase = 'waiting'), "
        '(SELECT max("row") FROM outbox), 0)'
    )
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_outbox_phase"))
        batch_op.drop_column("phase")
        batch_op.drop_column("attempts")
        batch_op.drop_column("next_attempt_at")


def downgrade() -> None:
    with op.batch_alter_table("outbox", schema=None) as batch_op:
        batch_op.add_column(
            sa.Column("next_attempt_at", sa.FLOAT(), nullable=False, server_default="0")
        )
        batch_op.add_column(sa.Column("attempts", sa.INTEGER(), nullable=False, server_default="0"))
        batch_op.add_column(
            sa.Column("phase", sa.VARCHAR(length=16), nullable=False, server_default="delivered")
        )
        batch_op.create_index(batch_op.f("ix_outbox_phase"), ["phase", "row"], unique=False)

    with op.batch_alter_table("deliveries", schema=None) as batch_op:
        batch_op.drop_index("ix_deliveries_at")
        batch_op.alter_column(
            "message_id",
            existing_type=sa.String(length=160),
            type_=sa.VARCHAR(length=96),
            existing_nullable=False,
        )
        batch_op.drop_column("lane")

    op.drop_table("told_incidents")
    with op.batch_alter_table("silences", schema=None) as batch_op:
        batch_op.drop_index("ix_silences_ends_at")

    op.drop_table("silences")
    op.drop_table("notify_position")
    with op.batch_alter_table("notify_messages", schema=None) as batch_op:
        batch_op.drop_index("uq_notify_messages_lane_message_id")
        batch_op.drop_index("ix_notify_messages_lane_subject")
        batch_op.drop_index("ix_notify_messages_lane_phase")

    op.drop_table("notify_messages")
    with op.batch_alter_table("notify_members", schema=None) as batch_op:
        batch_op.drop_index("ix_notify_members_standing")
        batch_op.drop_index("ix_notify_members_case_key")

    op.drop_table("notify_members")
    op.drop_table("notify_lanes")
    with op.batch_alter_table("notify_cases", schema=None) as batch_op:
        batch_op.drop_index("ix_notify_cases_phase")

    op.drop_table("notify_cases")
