"""A real PostgreSQL of the tests' own: one a test process, made at first use."""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, text

from gpuwarden_server.store.places import parse_url
from gpuwarden_server.store.versions import prepare_store
from tests.fakes.waiting import wait_for

_PLACES = [Path("/usr/lib/postgresql"), Path("/usr/local/pgsql"), Path("/opt/homebrew/opt")]
USER = "postgres"
START_S = 30.0


@functools.cache
def _programs() -> Path | None:
    """Folder of initdb and postgres; Debian keeps it off PATH."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(path for place in _PLACES for path in place.glob("*/bin/initdb"))
    return found[-1].parent if found else None


class PostgresServer:
    """One PostgreSQL in a folder of its own, on a socket there; any user's, root's too.

    It does not sync to disk: a killed process loses nothing that way, and tests cut no power.
    """

    def __init__(self, **settings: str) -> None:
        """Make and start one.

        Args:
            settings: Further settings of PostgreSQL.
        """
        programs = _programs()
        if programs is None:
            pytest.skip("needs PostgreSQL: apt install postgresql (deploy/test_services.sh does)")
        self._programs = programs
        # PostgreSQL refuses to run as root, and root's temporary folders are closed to others.
        self._user = USER if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="gpuwarden-pg-", dir="/tmp"))
        if self._user is not None:
            shutil.chown(self.folder, self._user, self._user)
        self._settings = {
            "fsync": "off",
            "full_page_writes": "off",
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "shared_buffers": "32MB",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-A", "trust", "-U", USER, "--locale=C", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start, and wait until it takes connections."""
        words = [
            part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                user=self._user,
                group=self._user,
                cwd=self.folder,
            )
        wait_for(self._answers, START_S, "PostgreSQL takes connections")

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop at once: SIGINT ends all sessions, SIGQUIT as a crash does."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(START_S)

    def close(self) -> None:
        """Stop it and remove its files."""
        if self._process is not None and self._process.poll() is None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = USER) -> str:
        """Address of one of its databases."""
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def make_database(self, template: str = "template1") -> str:
        """Address of a fresh database."""
        name = f"t{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def execute(self, statement: str) -> None:
        """Carry out a statement as the superuser, outside any transaction."""
        run_sql(parse_url(self.url()), statement)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        ready = [str(self._programs / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER]
        return subprocess.run(ready, check=False).returncode == 0

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._programs / program, "-D", self._data, *words],
            check=True,
            capture_output=True,
            user=self._user,
            group=self._user,
            cwd=self.folder,
        )


def run_sql(url: URL, statement: str) -> list[Any]:
    """Carry out a statement on a connection of its own; its rows."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            answer = connection.execute(text(statement))
            return [tuple(row) for row in answer] if answer.returns_rows else []
    finally:
        engine.dispose()


@functools.cache
def shared_postgres() -> PostgresServer:
    """The one PostgreSQL of this test process, with a database `prepared` to copy from."""
    server = PostgresServer()
    atexit.register(server.close)
    server.execute("CREATE DATABASE prepared")
    prepare_store(parse_url(server.url("prepared")))
    return server


def fresh_database() -> str:
    """Address of a database with all tables and nothing in them."""
    return shared_postgres().make_database("prepared")
