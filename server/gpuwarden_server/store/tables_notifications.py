"""Tables of notifications: what was told about whom, what waits, silences.

An endpoint is one entry of the notification file; a lane is one address of it, with a queue of its
own. Times are epoch seconds; bodies are JSON text.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, String, Table, Text

from gpuwarden_server.store.base import STATE, BigInt

notify_position = Table(
    "notify_position",
    STATE,
    Column("id", Integer, primary_key=True),  # always 1
    Column("outbox_row", BigInt, nullable=False),
)

# What the outbox last said of a live incident, so that only news is a fact.
told_incidents = Table(
    "told_incidents",
    STATE,
    Column("incident_id", String(32), primary_key=True),
    Column("severity", String(16), nullable=False),
    Column("fault_class", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("updates", BigInt, nullable=False),
    Column("parent_id", String(32), nullable=False, server_default=""),  # "" none
    # Not `node_id`, which a change of the name would change: that it differs is what is told.
    Column("told_node", String, nullable=False, server_default=""),  # "" of before, or a place's
)

notify_members = Table(
    "notify_members",
    STATE,
    Column("endpoint", String(64), primary_key=True),
    Column("subject", String(32), primary_key=True),  # incident or decision
    Column("case_key", String(255), nullable=False),  # "" where the endpoint knows no cases
    Column("standing", String(16), nullable=False),  # told, silenced, digest, over
    Column("since", Float, nullable=False),
    Column("body", Text, nullable=False),
    Index("ix_notify_members_standing", "endpoint", "standing", "since"),
    Index("ix_notify_members_case_key", "endpoint", "case_key"),
)

notify_cases = Table(
    "notify_cases",
    STATE,
    Column("endpoint", String(64), primary_key=True),
    Column("case_key", String(255), primary_key=True),
    Column("phase", String(16), nullable=False),  # open, closed
    Column("opened_at", Float, nullable=False),
    Column("joined_at", Float, nullable=False),
    Column("overflow", Integer, nullable=False),  # 1: holds what the rate cap folded together
    Column("body", Text, nullable=False),  # places, class, moves
    Column("external", Text, nullable=False),  # what the receiver named it, what it was last told
    Index("ix_notify_cases_phase", "endpoint", "phase", "joined_at"),
)

notify_messages = Table(
    "notify_messages",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("lane", String(80), nullable=False),
    Column("message_id", String(160), nullable=False),  # natural: planned twice, written once
    Column("sequence", BigInt, nullable=False),
    Column("kind", String(48), nullable=False),
    Column("subject", String(255), nullable=False),  # messages of one subject go in order
    Column("created_at", Float, nullable=False),
    Column("since", Float, nullable=False),  # the day of attempts begins here; a replay moves it
    Column("payload", Text, nullable=False),
    Column("phase", String(16), nullable=False),  # waiting, delivered, given_up
    Column("attempts", Integer, nullable=False),
    Column("refusals", Integer, nullable=False),  # attempts that spoke of the message itself
    Column("next_attempt_at", Float, nullable=False),
    Column("error", Text, nullable=False),
    Index("uq_notify_messages_lane_message_id", "lane", "message_id", unique=True),
    Index("ix_notify_messages_lane_phase", "lane", "phase", "next_attempt_at"),
    Index("ix_notify_messages_lane_subject", "lane", "subject", "phase"),
)

notify_lanes = Table(
    "notify_lanes",
    STATE,
    Column("lane", String(80), primary_key=True),
    Column("sequence", BigInt, nullable=False),
    Column("failing_since", Float),  # no success since then
    Column("disabled_at", Float),
    Column("disabled_why", Text, nullable=False),
)

silences = Table(
    "silences",
    STATE,
    Column("id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),  # silence, maintenance
    Column("matchers", Text, nullable=False),
    Column("starts_at", Float, nullable=False),
    Column("ends_at", Float, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expired_at", Float),
    Column("expired_by", String(255)),
    Index("ix_silences_ends_at", "ends_at"),
)
