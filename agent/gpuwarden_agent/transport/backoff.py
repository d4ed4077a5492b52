"""Pauses between tries: doubling, jittered, so that a fleet does not come back all at once."""

from __future__ import annotations

import random

_FIRST_S = 0.25


class Backoff:
    """Doubles from a quarter of a second up to a limit; each pause is half fixed, half random."""

    def __init__(self, limit_s: float, draw: random.Random | None = None) -> None:
        self._limit_s = limit_s
        self._draw = draw or random.Random()
        self._failures = 0

    def reset(self) -> None:
        """The last try went well."""
        self._failures = 0

    def next_s(self, asked_s: float | None = None) -> float:
        """Seconds to wait now; at least what the server asked for, plus up to a tenth of it."""
        full = min(self._limit_s, _FIRST_S * 2.0 ** min(self._failures, 20))
        self._failures += 1
        pause = full * (0.5 + self._draw.random() / 2)
        if asked_s is None:
            return pause
        return max(pause, asked_s * (1 + self._draw.random() / 10))
