"""Two servers of one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuwarden_server.access.credentials import new_key
from gpuwarden_server.store.places import parse_url
from tests.builders.feed import quick_settings
from tests.builders.postgres import fresh_database, run_sql
from tests.builders.server import Running, ServerProcess, wait_until
from tests.fakes.ports import free_port

LEASE_S = 3.0


@dataclass
class Pair:
    """Two servers of one database, not yet started.

    Attributes:
        database: Its address.
        processes: The servers.
        urls: Where they are reached.
    """

    database: str
    processes: list[ServerProcess]
    urls: list[str]
    running: list[Running] = field(default_factory=list)

    def start(self, number: int) -> Running:
        """Start one; it leads, or stands by where the other one leads."""
        started = self.processes[number].start(must_lead=False)
        self.running.append(started)
        return started

    def rows(self, statement: str) -> list[Any]:
        """Rows, asked beside the servers."""
        return run_sql(parse_url(self.database), statement)


@contextmanager
def server_pair(folder: Path, **overrides: Any) -> Iterator[Pair]:
    """A pair; `overrides` are settings of both."""
    database, key = fresh_database(), new_key()
    made = Pair(database, [], [])
    for name in ("first", "second"):
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        settings = quick_settings(
            folder / name,
            database_url=database,
            admin_key=key,
            port=port,
            lease_s=LEASE_S,
            advertise_url=url,
            **overrides,
        )
        made.urls.append(url)
        made.processes.append(ServerProcess(settings))
    try:
        yield made
    finally:
        for running in made.running:
            running.admin.close()
        for process in made.processes:
            process.close()


def readyz(server: Running) -> dict[str, Any]:
    """What a server says of itself."""
    body: dict[str, Any] = server.admin.get("/readyz").json()
    return body


def leading(server: Running) -> Running:
    """The server, once it leads."""
    wait_until(lambda: readyz(server)["state"] == "ready", "it leads", 60.0)
    return server
