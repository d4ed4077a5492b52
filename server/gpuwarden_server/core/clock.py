"""Time as a value that is handed in, so that a story of hours runs in a second."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the server reads time."""

    def now(self) -> float:
        """UTC, epoch seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards; for intervals and silence."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """UTC, epoch seconds."""
        return time.time()

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC, seconds."""
        return time.monotonic()
