"""Clocks that a test moves on."""

from __future__ import annotations

import time


class MovedClock:
    """The machine's clocks, `ahead` seconds on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        """UTC, epoch seconds."""
        return time.time() + self.ahead

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic() + self.ahead


class StillClock:
    """A clock that stands where it was made, `ahead` seconds on."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self._now, self._monotonic = time.time(), time.monotonic()

    def now(self) -> float:
        """UTC, epoch seconds."""
        return self._now + self.ahead

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return self._monotonic + self.ahead
