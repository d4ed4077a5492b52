"""A reading is a number or the reason why there is none: unknown is a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NotSupported:
    """The device or driver does not have this metric at all; not a fault."""

    reason: str = "not_supported"


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The metric exists but could not be read now.

    Attributes:
        reason: A short stable phrase: "permission_denied", "gpu_is_lost", "timeout",
            "no_such_file".
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The last value is too old to be used.

    Attributes:
        age_s: Seconds since the value was read.
    """

    age_s: float


Missing = NotSupported | Unavailable | Stale
Reading = float | Missing

Rows = Mapping[str, Mapping[str, Reading]]
"""Readings by entity key ("" for the node itself), then by metric name.

A metric absent from a row is not supported."""


def is_number(reading: Reading) -> bool:
    """True where the reading is a number (an int counts: counters are read as ints)."""
    return isinstance(reading, float | int)
