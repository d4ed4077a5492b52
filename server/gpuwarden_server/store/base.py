"""What all tables share: one metadata a half of the store, one naming convention.

STATE (state.db) holds what must never be lost: events, incidents, decisions, keys, audit. It is
written with synchronous FULL and its schema moves by Alembic. HISTORY (history.db) holds what can
be fed again: the checkpoint of telemetry state. It is written with NORMAL and carries its version
in a table of its own. On PostgreSQL both lie in one database.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

STATE = MetaData(naming_convention=NAMING)
HISTORY = MetaData(naming_convention=NAMING)

# Whole numbers that grow, or that somebody else chooses. SQLite's INTEGER holds 64 bits, and only a
# key of that very name counts by itself.
BigInt = BigInteger().with_variant(Integer(), "sqlite")
