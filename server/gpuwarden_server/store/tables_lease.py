"""Tables of the lease: which of several servers leads. Used on PostgreSQL alone.

The token stands apart from the renewals: every writing transaction holds a share lock on its row,
and a renewal must not wait for those.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, String, Table

from gpuwarden_server.store.base import STATE, BigInt

leases = Table(
    "leases",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("token", BigInt, nullable=False, comment="rises by one with every leader"),
    Column("holder", String, nullable=False, comment="random id of the leader's process"),
    Column("url", String, comment="where the leader is reached, NULL not told"),
    Column("taken_at", Float, nullable=False, comment="epoch seconds, the database's clock"),
)

lease_renewals = Table(
    "lease_renewals",
    STATE,
    Column("id", BigInt, primary_key=True),  # always 1
    Column("token", BigInt, nullable=False, comment="whose renewal it is"),
    Column("expires_at", Float, nullable=False, comment="epoch seconds, the database's clock"),
)
