"""One server a store: what is in memory would not know what another process writes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

from sqlalchemy import URL, Connection, func, select

from gpuwarden_server.core.errors import StoreError
from gpuwarden_server.store.places import Place, name_of
from gpuwarden_server.store.postgres import writing_engine

LOCK_FILE = "server.lock"


# PostgreSQL's advisory lock of the one server.
_SERVING = 0x67_70_77_62


class StoreLock(Protocol):
    """Held by the one server that works on a store."""

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreError: Another server has it.
        """
        ...

    def release(self) -> None:
        """Give it back; without effect where it is not held."""
        ...


def lock_of(place: Place) -> StoreLock:
    """The lock of a store."""
    return DatabaseLock(place) if isinstance(place, URL) else FolderLock(place)


def check_free(place: Place) -> None:
    """Refuse early, with a clear word, where another server works on a store.

    Raises:
        StoreError: Another server has it.
    """
    lock = lock_of(place)
    lock.acquire()
    lock.release()


class DatabaseLock:
    """An advisory lock in PostgreSQL; it ends with the connection that took it."""

    def __init__(self, url: URL) -> None:
        self._name = name_of(url)
        self._engine = writing_engine(url, "lock")
        self._connection: Connection | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreError: Another server has it.
        """
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if not connection.execute(select(func.pg_try_advisory_lock(_SERVING))).scalar_one():
            connection.close()
            self._engine.dispose()
            raise StoreError(
                f"another server works on {self._name}",
                "Stop it, or set GPUWARDEN_DATABASE_URL to another database.",
            )
        self._connection = connection

    def release(self) -> None:
        """Give it back; without effect where it is not held."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._engine.dispose()


class FolderLock:
    """An advisory lock on a state folder; the kernel frees it when the process ends, however."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK_FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreError: Another server has it.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StoreError(
                f"another server works on {self._path.parent}",
                "Stop it, or set GPUWARDEN_STATE_FOLDER to another folder.",
            ) from error
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back; without effect where it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
