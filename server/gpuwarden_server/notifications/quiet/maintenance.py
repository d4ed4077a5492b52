"""Maintenance windows as the judge asks for them: one source for silence and for judging."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.facts.outbox import Places
from gpuwarden_server.notifications.quiet import repository
from gpuwarden_server.notifications.quiet.domain import (
    LABELS_OF_FACTS,
    LONGEST_S,
    Matcher,
    Silence,
    SilenceKind,
)
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.policy.document import Pin


class Maintenance:
    """Windows that hold or will; read anew after each change, callable from any thread."""

    def __init__(self, state: Database, clock: Clock, places: Places) -> None:
        """Make it.

        Args:
            state: state.db.
            clock: Time.
            places: Labels of a node, its pool among them.
        """
        self._state = state
        self._clock = clock
        self._places = places
        self._windows: Sequence[Silence] | None = None

    def forget(self) -> None:
        """Something changed: read them again when somebody asks."""
        self._windows = None

    def begin(self, connection: Connection, pin: Pin, now: float) -> None:
        """Write the window of a planned leave, in a transaction; `forget` after it."""
        starts_at = pin.starts_at if pin.starts_at is not None else now
        window = Silence(
            id=pin.window_id,
            kind=SilenceKind.MAINTENANCE,
            matchers=(Matcher("node", pin.entity.node_id),),
            starts_at=starts_at,
            ends_at=pin.expires_at if pin.expires_at is not None else starts_at + LONGEST_S,
            reason=f"planned leave: {pin.reason}",
            author=pin.by,
            created_at=now,
        )
        repository.add(connection, window)

    def end(self, connection: Connection, window_id: str, at: float, by: str) -> None:
        """End a window, in a transaction; "" and what has ended are let be."""
        found = repository.find(connection, window_id) if window_id else None
        if found is not None and found.expired_at is None and found.ends_at > at:
            repository.expire(connection, window_id, at, by)

    def any_now(self) -> bool:
        """Whether any window holds."""
        return bool(self._active())

    def of(self, node_id: str) -> str:
        """The window that a node is under, in words; "" for none."""
        labels = {**self._places(node_id), "node": node_id}
        for window in self._active():
            if all(matcher.holds(labels) for matcher in window.matchers):
                return f"maintenance {window.id} by {window.author}: {window.reason}"
        return ""

    def _active(self) -> list[Silence]:
        windows = self._windows
        now = self._clock.now()
        if windows is None:
            with self._state.read() as connection:
                found = repository.not_ended(connection, now)
            windows = self._windows = tuple(one for one in found if _is_of_nodes(one))
        return [window for window in windows if window.active(now)]


def _is_of_nodes(silence: Silence) -> bool:
    asked = {matcher.label for matcher in silence.matchers}
    return silence.kind is SilenceKind.MAINTENANCE and not asked & LABELS_OF_FACTS
