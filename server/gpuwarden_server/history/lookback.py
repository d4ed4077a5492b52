"""Readings of the latest hour in memory, so that an incident that opens gets to keep them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from threading import Lock

import structlog

from gpuwarden_server.history.domain import MINUTE_S
from gpuwarden_server.history.meters import HistoryMeters

HORIZON_S = 3600
LEAST_REACH_S = 300
"""Where the budget reaches less far back, the work is not worth it: nothing is kept at all."""
RETRY_S = 3600.0
_TELLING_SHARE = 0.1
"""Of the fleet's minute: from here on its bytes tell how far back the budget will reach."""

_log = structlog.get_logger(__name__)


class Lookback:
    """Packed minutes of all nodes within a budget of bytes; the oldest go first."""

    def __init__(self, budget: int, monotonic: Callable[[], float], meters: HistoryMeters) -> None:
        """Make it empty.

        Args:
            budget: Bytes; 0 keeps nothing.
            monotonic: Seconds that never run backwards.
            meters: Where its size and reach show.
        """
        self._budget = budget
        self._monotonic = monotonic
        self._meters = meters
        self._lock = Lock()
        self._held: deque[tuple[int, int, bytes]] = deque()
        self._size = self._seen_bytes = 0
        self._seen_share = 0.0
        self._asleep_until = float("-inf") if budget else float("inf")

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    @property
    def is_kept(self) -> bool:
        """Whether minutes are taken at present."""
        return self._monotonic() >= self._asleep_until

    def add(self, minute: int, pack: int, body: bytes, share: float) -> None:
        """Keep a pack's minute.

        Args:
            minute: Counts from the epoch.
            pack: The pack.
            body: Its packed readings.
            share: Of all nodes, how many are in it, 0 to 1.
        """
        with self._lock:
            self._held.append((minute, pack, body))
            self._size += len(body)
            self._seen_bytes += len(body)
            self._seen_share += share
            is_over = self._size > self._budget
            while self._held and (
                self._size > self._budget or minute - self._held[0][0] > HORIZON_S // MINUTE_S
            ):
                self._size -= len(self._held.popleft()[2])
            reach_s = MINUTE_S * (minute - self._held[0][0] + 1) if self._held else 0
            most_s = min(self._expected_reach_s(), reach_s if is_over else inf)
            if most_s < LEAST_REACH_S:
                self._sleep(most_s)
                reach_s = 0
        self._meters.lookback_bytes.set(self._size)
        self._meters.lookback_seconds.set(reach_s)

    def of_pack(self, pack: int) -> list[tuple[int, bytes]]:
        """Minutes of a pack, oldest first."""
        with self._lock:
            return [(minute, body) for minute, own, body in self._held if own == pack]

    def _expected_reach_s(self) -> float:
        """How far back the budget will reach, once enough of the fleet was seen to tell."""
        if self._seen_share < _TELLING_SHARE:
            return inf
        return MINUTE_S * self._budget * self._seen_share / self._seen_bytes

    def _sleep(self, reach_s: float) -> None:
        self._held.clear()
        self._size = self._seen_bytes = 0
        self._seen_share = 0.0
        self._asleep_until = self._monotonic() + RETRY_S
        _log.warning(
            "history_lookback_off",
            reach_s=round(reach_s),
            mend="raise GPUWARDEN_HISTORY_LOOKBACK_MIB, or keep all readings on disk",
        )
