"""Token buckets on a clock of the test's own."""

from __future__ import annotations

import pytest

from gpuwarden_server.access import limits
from gpuwarden_server.access.limits import MOST_BUCKETS, Buckets, Rate


def test_a_burst_and_then_the_rate() -> None:
    buckets = Buckets(Rate(per_s=2.0, burst=3))
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("b", 0.0) == 0.0, "each has its own"
    assert buckets.take("a", 0.5) == 0.0
    assert buckets.take("a", 0.5) == pytest.approx(0.5)
    assert [buckets.take("a", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_looking_takes_nothing() -> None:
    buckets = Buckets(Rate(per_s=1.0, burst=1))
    assert [buckets.wait_s("a", 0.0) for _ in range(3)] == [0.0] * 3
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.wait_s("a", 0.25) == pytest.approx(0.75)


def test_a_clock_that_stands_or_runs_back_gives_nothing() -> None:
    buckets = Buckets(Rate(per_s=1.0, burst=1))
    assert buckets.take("a", 10.0) == 0.0
    assert buckets.take("a", 5.0) == 1.0


def test_zero_does_not_limit() -> None:
    buckets = Buckets(Rate(per_s=0.0, burst=0))
    assert {buckets.take("a", 0.0) for _ in range(100)} == {0.0}
    assert buckets.wait_s("a", 0.0) == 0.0


def test_very_many_names_take_bounded_memory() -> None:
    buckets = Buckets(Rate(per_s=1.0, burst=1))
    for number in range(MOST_BUCKETS + 1000):
        buckets.take(f"10.0.{number}", 0.0)
    assert len(buckets) == limits.MOST_BUCKETS
