"""What is true now, read from state.db at the start. Owned by the judge's thread."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_server.decisions import repository as decision_rows
from gpuwarden_server.decisions.feed import FeedHead
from gpuwarden_server.decisions.pins import repository as pin_rows
from gpuwarden_server.decisions.repository import ensure_feed
from gpuwarden_server.incidents import repository as incident_rows
from gpuwarden_server.judging.repository import (
    read_position,
    read_repairs,
    read_returns,
    read_states,
)
from gpuwarden_verdict.engine.book import Book, Kept


class StoredBook(Book):
    """Everything that is live, by decision target; changed only by committed outcomes.

    Attributes:
        head: Head of the feed after the last commit.
        position: Row of the newest event that is judged.
    """

    def __init__(self, connection: Connection, now: float) -> None:
        """Read everything that is live.

        Args:
            connection: Writing connection: a new database gets its feed.
            now: Epoch seconds.
        """
        self.head: FeedHead = ensure_feed(connection)
        self.position = read_position(connection)
        refs, records, checks = read_states(connection)
        super().__init__(
            Kept(
                refs=refs,
                records=records,
                checks=checks,
                repaired_at=read_repairs(connection),
                incidents=tuple(incident_rows.read_live(connection)),
                acquittals=tuple(incident_rows.read_acquittals(connection, now)),
                decisions=tuple(decision_rows.read_live(connection)),
                clearances=tuple(incident_rows.read_clearances(connection, now)),
                returned_at=read_returns(connection),
                pins=tuple(pin_rows.read_live(connection)),
            )
        )
