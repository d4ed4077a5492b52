from __future__ import annotations

from prometheus_client import CollectorRegistry

from gpuwarden_server.history.lookback import LEAST_REACH_S, RETRY_S, Lookback
from gpuwarden_server.history.meters import HistoryMeters

PACKS = 20


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lookback_of(minutes: float) -> tuple[Lookback, Time]:
    """One whose budget holds so many minutes of a fleet in PACKS packs of 100 bytes each."""
    time = Time()
    return Lookback(int(minutes * PACKS * 100), time, HistoryMeters(CollectorRegistry())), time


def test_a_budget_that_reaches_too_short_is_known_from_a_tenth_of_the_first_minute() -> None:
    lookback, time = lookback_of(LEAST_REACH_S / 60 - 1)
    kept = []
    for pack in range(2):
        lookback.add(0, pack, bytes(100), 1 / PACKS)
        kept.append(lookback.is_kept)
    time.now += RETRY_S
    assert [*kept, lookback.is_kept] == [True, False, True]
    assert lookback.of_pack(0) == []


def test_a_budget_that_reaches_far_enough_lets_the_oldest_go() -> None:
    minutes = LEAST_REACH_S // 60 + 2
    lookback, _ = lookback_of(minutes)
    for minute in range(3 * minutes):
        for pack in range(PACKS):
            lookback.add(minute, pack, bytes(100), 1 / PACKS)
    assert lookback.is_kept
    assert [minute for minute, _ in lookback.of_pack(7)] == list(range(2 * minutes, 3 * minutes))
