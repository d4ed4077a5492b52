"""Maintenance windows that nobody keeps."""

from __future__ import annotations

from sqlalchemy import Connection

from gpuwarden_verdict.policy.document import Pin


class NoWindows:
    """Where no leave is planned."""

    def begin(self, connection: Connection, pin: Pin, now: float) -> None:
        """Nothing."""

    def end(self, connection: Connection, window_id: str, at: float, by: str) -> None:
        """Nothing."""

    def forget(self) -> None:
        """Nothing."""
