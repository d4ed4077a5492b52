"""One server a state folder: what is in memory would not know what another process writes."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from gpuwarden_server.core.errors import StoreError

LOCK_FILE = "server.lock"


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


def check_folder_free(folder: Path) -> None:
    """Refuse early, with a clear word, where a server works on `folder`.

    Raises:
        StoreError: A server works on it.
    """
    lock = FolderLock(folder)
    lock.acquire()
    lock.release()
