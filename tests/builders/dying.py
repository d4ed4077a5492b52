"""`python -m tests.builders.dying STEP`: the server, ended by SIGKILL at a step of a promotion."""

from __future__ import annotations

import os
import signal
import sys
import threading
from enum import StrEnum

from sqlalchemy import Connection, Engine, event

from gpuwarden_server.__main__ import main


class Step(StrEnum):
    """Where in the transaction that excludes a leaver and leases its joiner."""

    EXCLUDED = "excluded"  # the exclusion is written
    LEASED = "leased"  # the lease is
    COMMITTING = "committing"  # the next thing is COMMIT
    COMMITTED = "committed"  # it has returned, and nobody was told


_WRITES = {
    Step.EXCLUDED: "insert into decision_moves",
    Step.LEASED: "insert into standby_leases",
}


class Reaper:
    """Listens to what the server does to its database, and ends it."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._leased: set[int] = set()
        self._committed: set[int] = set()

    def listen(self) -> None:
        """From now on."""
        event.listen(Engine, "after_cursor_execute", self._wrote)
        event.listen(Engine, "commit", self._commits)
        event.listen(Engine, "begin", self._begins)

    def _wrote(self, connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        written = " ".join(statement.split()).lower()
        if written.startswith(_WRITES.get(self._step, "never")):
            _die()
        if written.startswith(_WRITES[Step.LEASED]):
            self._leased.add(threading.get_ident())

    def _commits(self, connection: Connection) -> None:
        if threading.get_ident() not in self._leased:
            return
        if self._step is Step.COMMITTING:
            _die()
        self._committed.add(threading.get_ident())

    def _begins(self, connection: Connection) -> None:
        if threading.get_ident() in self._committed:  # the writer's thread is past its COMMIT
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    Reaper(Step(sys.argv.pop(1))).listen()
    sys.exit(main())
