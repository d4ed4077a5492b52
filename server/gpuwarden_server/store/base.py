"""What all tables share: one metadata a file, one naming convention.

state.db (STATE) holds what must never be lost: events, incidents, decisions, keys, audit. It is
written with synchronous FULL and its schema moves by Alembic. history.db (HISTORY) holds what can
be fed again: the checkpoint of telemetry state. It is written with NORMAL and carries its version
in `PRAGMA user_version`.
"""

from __future__ import annotations

from sqlalchemy import MetaData

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

STATE = MetaData(naming_convention=NAMING)
HISTORY = MetaData(naming_convention=NAMING)
