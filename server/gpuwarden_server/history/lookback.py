"""Readings of the latest hour in memory, so that an incident that opens gets to keep them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock

import structlog

from gpuwarden_server.history.domain import MINUTE_S
from gpuwarden_server.history.meters import HistoryMeters

HORIZON_S = 3600
LEAST_REACH_S = 300
"""Where the budget reaches less far back, the work is not worth it: nothing is kept at all."""
RETRY_S = 3600.0

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
        self._size = 0
        self._asleep_until = float("-inf") if budget else float("inf")

    @property
    def is_kept(self) -> bool:
        """Whether minutes are taken at present."""
        return self._monotonic() >= self._asleep_until

    def add(self, minute: int, pack: int, body: bytes) -> None:
        """Keep a pack's minute; `minute` counts from the epoch."""
        with self._lock:
            self._held.append((minute, pack, body))
            self._size += len(body)
            is_over = self._size > self._budget
            while self._held and (
                self._size > self._budget or minute - self._held[0][0] > HORIZON_S // MINUTE_S
            ):
                self._size -= len(self._held.popleft()[2])
            reach_s = MINUTE_S * (minute - self._held[0][0] + 1) if self._held else 0
            if is_over and reach_s < LEAST_REACH_S:
                self._sleep(reach_s)
                reach_s = 0
        self._meters.lookback_bytes.set(self._size)
        self._meters.lookback_seconds.set(reach_s)

    def of_pack(self, pack: int) -> list[tuple[int, bytes]]:
        """Minutes of a pack, oldest first."""
        with self._lock:
            return [(minute, body) for minute, own, body in self._held if own == pack]

    def _sleep(self, reach_s: int) -> None:
        self._held.clear()
        self._size = 0
        self._asleep_until = self._monotonic() + RETRY_S
        _log.warning(
            "history_lookback_off",
            reach_s=reach_s,
            mend="raise GPUWARDEN_HISTORY_LOOKBACK_MIB, or keep all readings on disk",
        )
