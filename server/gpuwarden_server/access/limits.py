"""Rate limits: token buckets by key and by address, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MOST_BUCKETS = 50_000
"""Buckets kept of one kind; the ones not used for longest go first, and would be full again."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How much is allowed.

    Attributes:
        per_s: Requests a second, for ever; 0 does not limit.
        burst: Requests at once after a pause.
    """

    per_s: float
    burst: float


class Buckets:
    """Token buckets of one rate, by name (an address, a key's id); used on the event loop only."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        # By name: what is left, and when that was.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, now: float) -> float:
        """Take one from a bucket.

        Args:
            name: Whose.
            now: Monotonic seconds.

        Returns:
            0 where it was there, else seconds until the next one is.
        """
        if self._rate.per_s <= 0:
            return 0.0
        left = self._fill(name, now)
        if left < 1.0:
            self._keep(name, left, now)
            return (1.0 - left) / self._rate.per_s
        self._keep(name, left - 1.0, now)
        return 0.0

    def wait_s(self, name: str, now: float) -> float:
        """Seconds until one is there, 0 where one is; takes none."""
        left = self._fill(name, now) if self._rate.per_s > 0 else 1.0
        return max(0.0, (1.0 - left) / self._rate.per_s) if left < 1.0 else 0.0

    def __len__(self) -> int:
        """Buckets kept."""
        return len(self._left)

    def _fill(self, name: str, now: float) -> float:
        left, at = self._left.get(name, (self._rate.burst, now))
        return min(self._rate.burst, left + max(0.0, now - at) * self._rate.per_s)

    def _keep(self, name: str, left: float, now: float) -> None:
        self._left[name] = left, now
        self._left.move_to_end(name)
        if len(self._left) > MOST_BUCKETS:
            self._left.popitem(last=False)
