"""Engines over one PostgreSQL database: one that writes, one that reads."""

from __future__ import annotations

from typing import Any

from psycopg import Connection as PsycopgConnection
from psycopg.types.string import StrDumper
from sqlalchemy import URL, Engine, create_engine, event

CONNECT_TIMEOUT_S = 5
# A peer that is gone without a word is noticed after about 15 s, not after the kernel's 15 min.
_TCP = {
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
READER_POOL = 8


class _TextDumper(StrDumper):
    """Text without the character NUL, which PostgreSQL cannot store: U+FFFD stands in its place.

    A driver's string may hold one; that must not cost the event it comes with.
    """

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in obj else obj)


def writing_engine(url: URL, name: str) -> Engine:
    """Engine of one connection that writes; each commit waits until it is on disk.

    Args:
        url: Where.
        name: As which it shows up in pg_stat_activity.
    """
    return _engine(url, name, {"synchronous_commit": "on"}, pool_size=1)


def lease_engine(url: URL, name: str) -> Engine:
    """Engine of one connection that keeps the lease; one that broke while idle is replaced."""
    return _engine(url, name, {}, pool_size=1, pool_pre_ping=True)


def reading_engine(url: URL, name: str) -> Engine:
    """Engine whose connections cannot write, and see one snapshot in a transaction."""
    return _engine(
        url,
        name,
        {"default_transaction_read_only": "on"},
        isolation_level="REPEATABLE READ",
        pool_size=READER_POOL,
        # A restart of PostgreSQL ends all connections: none of them must cost a reader its answer.
        pool_pre_ping=True,
    )


def _engine(url: URL, name: str, parameters: dict[str, str], **options: Any) -> Engine:
    words = " ".join(f"-c {key}={value}" for key, value in parameters.items())
    engine = create_engine(
        url,
        max_overflow=options["pool_size"],
        pool_timeout=10,
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "application_name": f"gpuwarden {name}",
            "options": words,
            **_TCP,
        },
        **options,
    )

    @event.listens_for(engine, "connect")
    def _prepare(connection: PsycopgConnection[Any], record: object) -> None:
        connection.adapters.register_dumper(str, _TextDumper)

    return engine
