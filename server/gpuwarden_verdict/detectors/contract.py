"""What a detector is: the whole contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpuwarden_verdict.context import FleetContext, NodeContext
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.signals import Recovery, Signal
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.events import Event

Failed = Callable[[str, Exception], None]
"""Told the name of a detector and what it raised; the others go on where it returns."""


def raise_error(detector: str, error: Exception) -> None:
    """Where nobody must go on without a detector."""
    raise error


class EventDetector(Protocol):
    """Turns one event into signals, at once. Pure."""

    @property
    def name(self) -> str:
        """Stable snake_case name, as in settings and on pages."""
        ...

    @property
    def version(self) -> int:
        """Raised on any change of its results."""
        ...

    def detect_event(self, event: Event, ref: EntityRef, node: NodeContext) -> list[Signal]:
        """Signals that this event gives; an event it does not know gives none.

        Args:
            event: The event as stored.
            ref: The entity it was joined to (`context.entity_of`).
            node: What is known of its node.
        """
        ...


class SweepDetector(Protocol):
    """Looks at the whole fleet's state at once. Pure and vectorised."""

    @property
    def name(self) -> str:
        """Stable snake_case name, as in settings and on pages."""
        ...

    @property
    def version(self) -> int:
        """Raised on any change of its results."""
        ...

    @property
    def speaks_for(self) -> frozenset[str]:
        """Detectors whose level evidence a clear reading of this one ends."""
        ...

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """Signals that hold now. Missing readings, silent nodes and boot grace give none."""
        ...

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Which of `entities` a fresh reading shows to be clear of this detector's condition.

        A missing or old reading clears nothing.
        """
        ...
