from __future__ import annotations

import pytest

from gpuwarden_verdict.savings.chances import binomial_at_most, binomial_quantile, exact_interval


def test_chances_are_those_of_the_tables() -> None:
    assert binomial_at_most(8, 10, 0.5) == pytest.approx(1013 / 1024)
    assert binomial_quantile(10, 0.5, 0.99) == 9
    assert binomial_quantile(1024, 0.0012, 0.99) == 4
    assert (binomial_quantile(4, 0.0, 0.99), binomial_quantile(4, 1.0, 0.99)) == (0, 4)
    assert (binomial_at_most(4, 4, 0.5), binomial_at_most(-1, 4, 0.5)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_clopper_and_pearson(
    count: int, trials: int, low: float, high: float
) -> None:
    assert exact_interval(count, trials) == pytest.approx((low, high), abs=1e-4)
