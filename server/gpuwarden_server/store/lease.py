"""The lease in PostgreSQL: one server leads, and no write of a former leader gets in.

Taking the lease raises its token. Every writing transaction reads the token under a share lock
first, so that it either ends before another server has taken the lease, or finds the token changed
and is refused. All times are the database's own: clocks of servers are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    String,
    cast,
    func,
    inspect,
    select,
    text,
    update,
)

from gpuwarden_server.store.tables_lease import lease_renewals, leases
from gpuwarden_server.store.upsert import upsert
from gpuwarden_server.store.writer import WriteFailed

# What is under way in a former leader's transaction has so long to end; it is ended before that.
LOCK_TIMEOUT_S = 3
_ID = 1


class LeaseLost(WriteFailed):
    """Another server leads: nothing that this one still writes gets in."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who leads.

    Attributes:
        token: Its token, 0 nobody ever led.
        holder: Random id of its process.
        url: Where it is reached, None not told.
        remaining_s: Until its lease ends; negative where it has.
    """

    token: int
    holder: str
    url: str | None
    remaining_s: float


def read_holder(connection: Connection) -> Holder:
    """Who leads, by the database's clock."""
    found = connection.execute(
        select(
            leases.c.token,
            leases.c.holder,
            leases.c.url,
            lease_renewals.c.expires_at - _now(),
        ).join(lease_renewals, lease_renewals.c.id == leases.c.id)
    ).one_or_none()
    return Holder(0, "", None, -1.0) if found is None else Holder(*found)


def find_holder(connection: Connection) -> Holder | None:
    """Who leads, None where nobody does, or where the tables are not there yet."""
    if not inspect(connection).has_table(leases.name):
        return None
    holder = read_holder(connection)
    return holder if holder.remaining_s > 0 else None


def take(connection: Connection, holder: str, url: str | None, lease_s: float) -> int | None:
    """Take the lease where nobody holds it, in a transaction of its own.

    What the former leader has under way is ended first: its transaction would hold the token's row
    for as long as its process stands still.

    Args:
        connection: Writing connection.
        holder: Random id of this process.
        url: Where this server is reached, None not told.
        lease_s: How long the lease lasts.

    Returns:
        The token, None where another server leads.
    """
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
    for row in (
        upsert(connection, leases).values(id=_ID, token=0, holder="", url=None, taken_at=0.0),
        upsert(connection, lease_renewals).values(id=_ID, token=0, expires_at=0.0),
    ):
        connection.execute(row.on_conflict_do_nothing())
    # Whoever takes or renews waits here for the others.
    connection.execute(select(lease_renewals.c.id).with_for_update())
    former = read_holder(connection)
    if former.remaining_s > 0:
        return None
    if former.holder:
        _end_sessions(connection, former.holder)
    token = former.token + 1
    connection.execute(
        update(leases).values(token=token, holder=holder, url=url, taken_at=_now()),
    )
    connection.execute(update(lease_renewals).values(token=token, expires_at=_now() + lease_s))
    return token


def renew(connection: Connection, token: int, lease_s: float) -> bool:
    """Renew the lease; False where another server has taken it. With 0 s it is given up."""
    renewed = connection.execute(
        update(lease_renewals)
        .where(lease_renewals.c.token == token)
        .values(expires_at=_now() + lease_s)
    )
    return renewed.rowcount == 1


def check_token(connection: Connection, token: int) -> str:
    """Check in a transaction, as its first statement, that the lease with this token still holds.

    Returns:
        The transaction's id, for `was_committed`.

    Raises:
        LeaseLost: Another server leads.
    """
    mark = connection.execute(
        select(cast(func.pg_current_xact_id(), String))
        .select_from(leases)
        .where(leases.c.token == token)
        .with_for_update(read=True)
    ).scalar_one_or_none()
    if mark is None:
        raise LeaseLost("another server leads: it has taken the lease")
    return mark


def was_committed(connection: Connection, mark: str) -> bool | None:
    """How a transaction ended whose connection broke at its commit; None while it is not over."""
    statement = text("SELECT pg_xact_status(CAST(:mark AS xid8))")
    found = connection.execute(statement, {"mark": mark}).scalar_one()
    return None if found == "in progress" else bool(found == "committed")


def _end_sessions(connection: Connection, holder: str) -> None:
    connection.execute(
        text(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            "current_database() AND usename = current_user AND application_name LIKE :name"
        ),
        {"name": f"gpuwarden {holder} %"},
    )


def _now() -> ColumnElement[float]:
    return cast(func.extract("epoch", func.clock_timestamp()), Float)
