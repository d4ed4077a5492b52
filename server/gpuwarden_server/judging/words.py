"""What people say that incidents were, told to the ledger of parts."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

import structlog

from gpuwarden_server.judging.worker import Concluded, JudgeWorker
from gpuwarden_server.learning.labels.domain import hardware_by
from gpuwarden_server.learning.labels.repository import read_judged, read_judged_since
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.ledger import KEPT_S

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """Reads verdicts where they are stored, so that the last one holds whoever tells of it first.

    Attributes:
        state: state.db.
        chronicle: What is on record of parts.
    """

    state: Database
    chronicle: Chronicle

    def recall(self, now: float) -> None:
        """Tell of all before the judge starts: the ledger may be older than they are.

        Args:
            now: Epoch seconds.
        """
        with self.state.read() as connection:
            judged = read_judged_since(connection, now - KEPT_S)
        for incident, given in judged:
            self.chronicle.take_word(incident, hardware_by(given.verdict))

    def follow(self, worker: JudgeWorker, incident_id: str) -> None:
        """Tell of one in turn with everything else that the judge does. Never waits."""

        def work(now: float) -> Concluded:
            with self.state.read() as connection:
                judged = read_judged(connection, incident_id)
            if judged is not None:
                incident, given = judged
                self.chronicle.take_word(incident, hardware_by(given.verdict))
            return Concluded((), (), None)

        worker.submit(work).add_done_callback(_note)


def _note(done: Future[object]) -> None:
    """It is stored: the next start takes it up."""
    error = done.exception()
    if error is not None:
        _log.error("verdict_not_on_record", worker="judge", reason=str(error))
