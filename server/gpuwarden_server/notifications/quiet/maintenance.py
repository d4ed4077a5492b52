"""Maintenance windows as the judge asks for them: one source for silence and for judging."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_server.core.clock import Clock
from gpuwarden_server.notifications.facts.outbox import Places
from gpuwarden_server.notifications.quiet import repository
from gpuwarden_server.notifications.quiet.domain import LABELS_OF_FACTS, Silence, SilenceKind
from gpuwarden_server.store.database import Database


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
