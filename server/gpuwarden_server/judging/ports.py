"""What the judge needs from the layers above; app.py plugs them in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection

from gpuwarden_server.decisions.feed import FeedChange
from gpuwarden_verdict.incidents.domain import IncidentMove
from gpuwarden_verdict.policy.document import DecisionMove


class FactSink(Protocol):
    """Is told facts in their own transaction, and woken after it."""

    def write_facts(
        self,
        connection: Connection,
        incidents: Sequence[IncidentMove],
        decisions: Sequence[DecisionMove],
    ) -> None:
        """Write what must be told elsewhere, in the transaction of the facts."""
        ...

    def wake(self) -> None:
        """The transaction is committed."""
        ...


class FeedReaders(Protocol):
    """Is told every committed change of the feed, in order."""

    def publish(self, change: FeedChange) -> None:
        """Called in the judge's thread: must not block."""
        ...
