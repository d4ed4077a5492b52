"""Keeps the ledger of parts in state.db: what is on record of a part outlasts this process."""

from __future__ import annotations

import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from sqlalchemy import Connection

from gpuwarden_server.judging.repository import read_part_ledger, write_part_ledger
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.ledger import LedgerFormError, PartLedger

SAVE_EACH_S = 30.0
"""A changed ledger is stored so often at most; a server that is killed loses this much of it."""

_log = structlog.get_logger(__name__)


class LedgerKeeper:
    """The ledger of one server; used in the judge's thread, `save` after its end."""

    def __init__(self, database: Database) -> None:
        self.ledger = PartLedger()
        self._database = database
        self._saved_at: float | None = None
        self._saved_version = 0
        self._failing = False
        self._packer = ThreadPoolExecutor(1, thread_name_prefix="part-ledger")

    def load(self) -> None:
        """Take over what was stored before this start; what cannot be read fills anew."""
        with self._database.read() as connection:
            stored = read_part_ledger(connection)
        if stored is None:
            return
        try:
            self.ledger = PartLedger.imported(zlib.decompress(stored))
        except (LedgerFormError, zlib.error) as error:
            _log.warning("part_ledger_not_read", reason=str(error))

    def save_if_due(self, now: float) -> None:
        """Store what changed, once in SAVE_EACH_S, without waiting; `now` is epoch seconds."""
        if self._saved_at is None:
            self._saved_at = now
        if now - self._saved_at >= SAVE_EACH_S and self.ledger.version != self._saved_version:
            self._saved_at = now
            self.save(now)

    def save(self, now: float) -> Future[None]:
        """Store it; the future is done after the commit."""
        self._saved_version = self.ledger.version
        exported = self.ledger.export(now)
        written = self._packer.submit(self._store, exported, now)
        written.add_done_callback(self._note)
        return written

    def _store(self, exported: bytes, now: float) -> None:
        body = zlib.compress(exported)

        def write(connection: Connection) -> None:
            write_part_ledger(connection, body, now)

        self._database.writer.call(write, timeout_s=None)

    def _note(self, written: Future[None]) -> None:
        error = written.exception()
        if error is not None and not self._failing:
            _log.error("part_ledger_not_stored", reason=str(error))
        elif error is None and self._failing:
            _log.info("part_ledger_stored_again")
        self._failing = error is not None
