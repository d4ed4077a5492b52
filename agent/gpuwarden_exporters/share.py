"""Shares of a whole, whose name does not say whether they go to 1 or to 100."""

from __future__ import annotations

from enum import StrEnum

from gpuwarden_wire.readings import Reading, Unavailable

_PERCENT = 100.0
_SURELY_PERCENT = 1.5
"""Above 1 by more than rounding: no ratio."""


class _Guess(StrEnum):
    OPEN = "open"
    RATIO = "ratio"
    PERCENT = "percent"


class ShareScale:
    """Tells ratios from percents by the numbers of one metric of one exporter.

    DCGM 4.6 calls fields of whole percents _RATIO, beside others that go to 1. A number between 0
    and 1 shows a ratio, one well above 1 shows percents; until one or the other was seen, 1 may be
    both.
    """

    def __init__(self) -> None:
        self._guess = _Guess.OPEN

    def read(self, value: float) -> Reading:
        """The ratio that a number stands for, 0 to 1."""
        if not 0 <= value <= _PERCENT:
            return Unavailable("implausible_value")
        if value > _SURELY_PERCENT:
            self._guess = _Guess.PERCENT
        elif self._guess is _Guess.OPEN and 0 < value < 1:
            self._guess = _Guess.RATIO
        if value == 0:
            return 0.0
        match self._guess:
            case _Guess.PERCENT:
                return value / _PERCENT
            case _Guess.RATIO:
                return min(value, 1.0)
            case _:
                return Unavailable("scale_not_known_yet")
