"""Keeps what sweep detectors remember: in memory while the server runs, and in state.db."""

from __future__ import annotations

import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from sqlalchemy import Connection

from gpuwarden_server.judging.repository import read_sweep_memory, write_sweep_memory
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.memory import MemoryFormError, SweepMemory

SAVE_EACH_S = 600.0
"""What is learnt changes over hours; a server that is killed loses this much of it."""
_FAST = 1  # zlib level: most planes are zeros, which any level packs away

_log = structlog.get_logger(__name__)


class MemoryKeeper:
    """The memory of one server's sweeps; used in the judge's thread, `save` after its end."""

    def __init__(self, database: Database) -> None:
        self.memory = SweepMemory()
        self._database = database
        self._saved_at: float | None = None
        self._failing = False
        # Packing a large fleet's memory takes a quarter of a second: neither the judge waits for
        # that, nor the writer.
        self._packer = ThreadPoolExecutor(1, thread_name_prefix="sweep-memory")

    def load(self) -> None:
        """Take over what was stored before this start; what cannot be read is learnt anew."""
        with self._database.read() as connection:
            stored = read_sweep_memory(connection)
        if stored is None:
            return
        try:
            self.memory = SweepMemory.imported(zlib.decompress(stored))
        except (MemoryFormError, zlib.error) as error:
            _log.warning("sweep_memory_not_read", reason=str(error))

    def rename(self, old: str, new: str, now: float) -> None:
        """A node is called `new` from now on, in what is stored too; `now` is epoch seconds."""
        self.memory.rename_node(old, new)
        self.save(now)

    def save_if_due(self, now: float) -> None:
        """Store it once in SAVE_EACH_S, without waiting; `now` is epoch seconds."""
        if self._saved_at is None:
            self._saved_at = now
        if now - self._saved_at >= SAVE_EACH_S:
            self._saved_at = now
            self.save(now)

    def save(self, now: float) -> Future[None]:
        """Store it; the future is done after the commit."""
        exported = self.memory.export()
        written = self._packer.submit(self._store, exported, now)
        written.add_done_callback(self._note)
        return written

    def _store(self, exported: bytes, now: float) -> None:
        body = zlib.compress(exported, _FAST)

        def write(connection: Connection) -> None:
            write_sweep_memory(connection, body, now)

        self._database.writer.call(write, timeout_s=None)

    def _note(self, written: Future[None]) -> None:
        error = written.exception()
        if error is not None and not self._failing:
            _log.error("sweep_memory_not_stored", reason=str(error))
        elif error is None and self._failing:
            _log.info("sweep_memory_stored_again")
        self._failing = error is not None
