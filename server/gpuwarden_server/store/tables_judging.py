"""Tables of the judging side: incidents, decisions, states, the exclusion feed and the outbox.

Times are epoch seconds (REAL). JSON columns hold text that `msgspec.json` wrote, so that a row can
be read with any tool.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, String, Table, Text, text

from gpuwarden_server.store.base import STATE, BigInt

incidents = Table(
    "incidents",
    STATE,
    Column("id", String(32), primary_key=True),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("fault_class", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("resolved_at", Float),
    Column("body", Text, nullable=False),
    # One live incident per entity and fault class, kept by the database itself.
    Index(
        "uq_incidents_live",
        "entity_kind",
        "entity",
        "fault_class",
        unique=True,
        sqlite_where=text("phase <> 'resolved'"),
        postgresql_where=text("phase <> 'resolved'"),
    ),
    Index("ix_incidents_entity", "entity_kind", "entity"),
    Index("ix_incidents_node_id", "node_id"),
    Index("ix_incidents_opened_at", "opened_at", "id"),
)

incident_moves = Table(
    "incident_moves",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("incident_id", String(32), nullable=False),
    Column("before", String(16)),
    Column("after", String(16), nullable=False),
    Column("fault_class", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_incident_moves_incident_id", "incident_id", "row"),
)

decisions = Table(
    "decisions",
    STATE,
    Column("id", String(32), primary_key=True),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("node_id", String(255), nullable=False),
    Column("incident_id", String(32)),
    Column("rung", Integer, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("decided_at", Float, nullable=False),
    Column("expires_at", Float),
    Column("body", Text, nullable=False),
    # What the decision was made from: risk with contributions, features by name, gate. Replayable.
    Column("snapshot", Text, nullable=False),
    Index("ix_decisions_entity", "entity_kind", "entity"),
    Index("ix_decisions_node_id", "node_id"),
    Index("ix_decisions_decided_at", "decided_at", "id"),
)

decision_moves = Table(
    "decision_moves",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("decision_id", String(32), nullable=False),
    Column("before", String(16)),
    Column("after", String(16), nullable=False),
    Column("rung", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_decision_moves_decision_id", "decision_id", "row"),
)

entity_states = Table(
    "entity_states",
    STATE,
    Column("entity_kind", String(8), primary_key=True),
    Column("entity", String(255), primary_key=True),
    Column("node_id", String(255), nullable=False),
    Column("state", String(16), nullable=False),
    Column("since", Float, nullable=False),
    # Newest passed check: faults observed before it are history.
    Column("checked_at", Float),
    Index("ix_entity_states_node_id", "node_id"),
)

entity_state_moves = Table(
    "entity_state_moves",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("entity_kind", String(8), nullable=False),
    Column("entity", String(255), nullable=False),
    Column("before", String(16), nullable=False),
    Column("after", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", String(255), nullable=False),
    Column("at", Float, nullable=False),
    Index("ix_entity_state_moves_entity", "entity_kind", "entity", "row"),
)

# What a revoke leaves behind; it outlives its incident.
acquittals = Table(
    "acquittals",
    STATE,
    Column("entity_kind", String(8), primary_key=True),
    Column("entity", String(255), primary_key=True),
    Column("fault_class", String(16), primary_key=True),
    Column("node_id", String(255), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("until", Float, nullable=False),
)

feed = Table(
    "feed",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1: one feed a database
    Column("feed_id", String(32), nullable=False),
    Column("epoch", BigInt, nullable=False),
    Column("count", BigInt, nullable=False),
    Column("digest", String(64), nullable=False),
)

feed_log = Table(
    "feed_log",
    STATE,
    Column("epoch", BigInt, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("count", BigInt, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("added", Text, nullable=False),
    Column("removed", Text, nullable=False),
    Column("planned", Text),  # what is planned from then on, NULL where that did not change
)

outbox = Table(
    "outbox",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    # Natural id of the fact: judging the same fact again writes no second message.
    Column("message_id", String(96), nullable=False, unique=True),
    Column("kind", String(48), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("payload", Text, nullable=False),
)

deliveries = Table(
    "deliveries",
    STATE,
    Column("row", BigInt, primary_key=True, autoincrement=True),
    Column("lane", String(80), nullable=False, server_default="webhook"),
    Column("message_id", String(160), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("duration_s", Float, nullable=False),
    Column("http_status", Integer),
    Column("error", Text, nullable=False),
    Index("ix_deliveries_message_id", "message_id", "row"),
    Index("ix_deliveries_at", "at"),
)

judged_position = Table(
    "judged_position",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("event_row", BigInt, nullable=False),
)

sweep_memory = Table(
    "sweep_memory",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("saved_at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False, comment="SweepMemory.export, zlib"),
)

part_ledger = Table(
    "part_ledger",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("saved_at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False, comment="PartLedger.export, zlib"),
)

clearances = Table(
    "clearances",
    STATE,
    Column("entity_kind", String(8), primary_key=True),
    Column("entity", String(255), primary_key=True),
    Column("detector", String(255), primary_key=True),
    Column("node_id", String(255), nullable=False),
    Column("severity", String(8), nullable=False),
    Column("score", Float, nullable=False),
    Column("at", Float, nullable=False),
    Column("seen_at", Float, nullable=False, comment="until when it went on, epoch seconds"),
)
