"""The book in memory: one immutable value, replaced whole, so that any thread may read it."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_server.standby.repository import read_shelf
from gpuwarden_verdict.standby import BookChange, Shelf


class StandbyBook:
    """What the judge committed last of spares and leases; written in its thread alone.

    Attributes:
        shelf: The book.
    """

    def __init__(self) -> None:
        self.shelf = Shelf()

    def load(self, connection: Connection) -> None:
        """Go on from what is stored."""
        self.shelf = read_shelf(connection)

    def apply(self, change: BookChange) -> None:
        """Take over what was committed."""
        self.shelf = self.shelf.after(change)
