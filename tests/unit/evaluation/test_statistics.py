"""Intervals say what counts can and cannot say."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from gpuwarden_models.evaluation.statistics import bootstrap_share, rate_bound, wilson


def test_wilson_is_that_of_the_textbook() -> None:
    low, high = wilson(19, 58)
    assert (round(low, 3), round(high, 3)) == (0.221, 0.456)
    assert wilson(0, 10)[0] == 0.0
    assert isnan(wilson(0, 0)[0])


def test_no_event_bounds_the_rate_at_three_over_the_time() -> None:
    assert rate_bound(0, 100.0) == pytest.approx(0.02996, abs=1e-4)
    assert rate_bound(0, 0.0) == float("inf")


def test_rows_of_one_unit_are_no_independent_evidence() -> None:
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(20), 50)
    hits = np.repeat(rng.random(20) < 0.5, 50).astype(float)
    ones = np.ones(hits.size)
    grouped = bootstrap_share(hits, ones, unit, 1)
    rows = bootstrap_share(hits, ones, np.arange(hits.size), 1)
    assert grouped[1] - grouped[0] > 3 * (rows[1] - rows[0])
    assert grouped == bootstrap_share(hits, ones, unit, 1)
