"""Tables of the fleet and the front door: nodes, GPUs, spools, events, keys, audit, checkpoint."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gpuwarden_server.store.base import HISTORY, STATE, BigInt

_STANDING = text("kind IN ('node_boot', 'collector_trouble', 'collector_recovered')")

nodes = Table(
    "nodes",
    STATE,
    Column("node_id", String, primary_key=True),
    Column("first_seen_at", Float, nullable=False, comment="epoch seconds, server's clock"),
    Column("last_seen_at", Float, nullable=False, comment="last batch; written at checkpoints"),
    Column("boot_id", String, nullable=False, comment="newest boot, '' before the first"),
    Column("agent_version", String, nullable=False),
    Column("interval_s", Float, nullable=False, comment="telemetry cadence, 0 unknown"),
    Column("gpus_expected", BigInt, comment="NULL unknown"),
    Column("nics", JSON, nullable=False),
    Column("disks", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("inventory_at", Float, comment="when the last inventory came, NULL never"),
)

node_boots = Table(
    "node_boots",
    STATE,
    Column("node_id", String, ForeignKey("nodes.node_id"), primary_key=True),
    Column("boot_id", String, primary_key=True),
    Column("first_seen_at", Float, nullable=False),
)

gpus = Table(
    "gpus",
    STATE,
    Column("gpu_uuid", String, primary_key=True),
    Column("node_id", String, ForeignKey("nodes.node_id"), nullable=False, index=True),
    Column("serial", String, nullable=False, comment="'' where the driver gives none"),
    Column("pci_bus_id", String, nullable=False, comment="last known, dddd:bb:dd.f"),
    Column("gpu_index", BigInt, comment="driver's index, display only"),
    Column("model", String, nullable=False),
    Column("driver_version", String, nullable=False),
    Column("vbios_version", String, nullable=False),
    Column("nics", JSON, nullable=False),
    Column("present", Boolean, nullable=False, comment="in the node's newest inventory"),
    Column("first_seen_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False, comment="newest inventory that named it"),
    Column("jobs", JSON, nullable=False, server_default="[]", comment="[kind, id] of each job"),
)

gpu_slots = Table(
    "gpu_slots",
    STATE,
    Column("id", BigInt, primary_key=True),
    Column("gpu_uuid", String, ForeignKey("gpus.gpu_uuid"), nullable=False, index=True),
    Column("node_id", String, ForeignKey("nodes.node_id"), nullable=False),
    Column("pci_bus_id", String, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, comment="NULL while it sits there"),
)

spools = Table(
    "spools",
    STATE,
    Column("node_id", String, ForeignKey("nodes.node_id"), primary_key=True),
    Column("spool_id", String, primary_key=True),
    Column("standing", String, nullable=False, comment="live or superseded"),
    Column("first_seen_at", Float, nullable=False),
    Column("last_seen_at", Float, nullable=False, comment="written at checkpoints"),
)

Index(
    "ix_spools_one_live",
    spools.c.node_id,
    unique=True,
    sqlite_where=text("standing = 'live'"),
    postgresql_where=text("standing = 'live'"),
)

applied_sequences = Table(
    "applied_sequences",
    STATE,
    Column("node_id", String, primary_key=True),
    Column("spool_id", String, primary_key=True),
    Column("ledger", LargeBinary, nullable=False, comment="sequences of the events stream, JSON"),
)

schemas = Table(
    "schemas",
    STATE,
    Column("hash", String, primary_key=True),
    Column("entity_kind", String, nullable=False),
    Column("body", Text, nullable=False, comment="canonical JSON"),
    Column("first_seen_at", Float, nullable=False),
)

events = Table(
    "events",
    STATE,
    Column("row", BigInt, primary_key=True, comment="order of arrival, never reused"),
    Column("id", String, nullable=False, comment="natural id, unique within the node"),
    Column("node_id", String, nullable=False),
    Column("entity_kind", String, nullable=False),
    Column("entity", String, nullable=False, comment="resolved key, unique over the fleet"),
    Column("kind", String, nullable=False),
    Column("observed_at", Float, nullable=False, comment="agent's clock, orders nothing"),
    Column("received_at", Float, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("spool_id", String, nullable=False),
    Column("seq", BigInt, nullable=False),
    Column("flags", String, nullable=False, comment="comma-separated, '' for none"),
    Column("body", Text, nullable=False, comment="the event as it came, JSON"),
    # Per node: an agent must not be able to take another node's ids, and a file's device, inode and
    # offset may well be the same on two nodes of one image.
    UniqueConstraint("node_id", "id"),
    sqlite_autoincrement=True,
)

Index(None, events.c.node_id, events.c.row)
Index(None, events.c.entity, events.c.row)
Index(  # what a starting judge looks for: few among very many, found without reading the others
    "ix_events_standing",
    events.c.kind,
    events.c.node_id,
    events.c.row,
    events.c.flags,
    sqlite_where=_STANDING,
    postgresql_where=_STANDING,
)

conflicts = Table(
    "conflicts",
    STATE,
    Column("id", BigInt, primary_key=True),
    Column("node_id", String, nullable=False, index=True),
    Column("spool_id", String, nullable=False),
    Column("stream", String, nullable=False),
    Column("seq", BigInt, nullable=False),
    Column("received_at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False, comment="the batch that was not applied, msgpack"),
)

keys = Table(
    "keys",
    STATE,
    Column("id", String, primary_key=True),
    Column("key_hash", String, nullable=False, unique=True, comment="SHA-256, hex"),
    Column("role", String, nullable=False),
    Column("node_id", String, comment="the one node of an agent key"),
    Column("name", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("created_by", String, nullable=False),
    Column("revoked_at", Float),
    Column("expires_at", Float, comment="NULL never"),
    Column("scope", JSON, nullable=False, server_default="{}", comment="what it is narrowed to"),
    Column("former_hash", String, comment="SHA-256 of the secret before the last rotation"),
    Column("former_until", Float, comment="until when the former secret is taken too"),
)

audit = Table(
    "audit",
    STATE,
    Column("id", BigInt, primary_key=True),
    Column("at", Float, nullable=False),
    Column("author", String, nullable=False, comment="name of the key, or gpuwarden"),
    Column("key_id", String, comment="NULL for gpuwarden itself"),
    Column("action", String, nullable=False),
    Column("target", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("before", JSON),
    Column("after", JSON),
    sqlite_autoincrement=True,
)

heartbeats = Table(
    "heartbeats",
    STATE,
    Column("id", BigInt, primary_key=True),
    Column("beats", BigInt, nullable=False, comment="writes that /readyz tried"),
)

checkpoints = Table(
    "checkpoints",
    HISTORY,
    Column("shard", Integer, primary_key=True),
    Column("saved_at", Float, nullable=False),
    Column("ledgers", LargeBinary, nullable=False, comment="telemetry sequences by spool, JSON"),
    Column("state", LargeBinary, nullable=False, comment="FleetState.export_nodes"),
)

history_version = Table(
    "history_version",
    HISTORY,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("version", Integer, nullable=False, comment="of the tables of this half"),
)
