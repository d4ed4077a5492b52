from __future__ import annotations

import numpy as np
import pytest

from gpuwarden_verdict.diagnosis.robust import (
    Run,
    grade,
    longest_run,
    one_quantile,
    peers,
    quantile,
    together,
)

NAN = float("nan")


@pytest.mark.parametrize("q", [0.0, 0.25, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_quantiles_are_numpys_and_skip_what_was_not_read(q: float, axis: int) -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(7, 9))
    values[rng.random(values.shape) < 0.2] = NAN
    assert np.allclose(quantile(values, q, axis), np.nanquantile(values, q, axis=axis))


def test_a_column_of_nothing_stays_unknown() -> None:
    values = np.array([[NAN, 1.0], [NAN, 3.0]])
    assert np.array_equal(quantile(values, 0.5, 0), [NAN, 2.0], equal_nan=True)
    assert np.isnan(quantile(np.empty((0, 2)), 0.5, 0)).all()
    assert np.isnan(one_quantile(values[:, 0], 0.5))


def test_of_few_each_is_compared_with_the_others_alone() -> None:
    assert peers(np.array([[1.0], [5.0]])).tolist() == [[5.0], [1.0]]
    assert np.isnan(peers(np.array([[1.0]]))).all()
    assert peers(np.array([[1.0], [1.0], [1.0], [1.0], [9.0]])).tolist() == [[1.0]] * 5


def test_a_run_outlives_a_gap_and_forgives_what_was_not_read() -> None:
    holds = np.array([0, 0, 1, 1, 0, 1, 1, 1, 0, 0], dtype=np.bool_)
    read = np.ones(10, dtype=np.bool_)
    assert longest_run(holds, read) == Run(2, 7, 5 / 6)
    read[4] = False
    assert longest_run(holds, read) == Run(2, 7, 1.0)
    assert longest_run(holds, read, least=6) is None


def test_grades_and_strengths_stay_within_their_bounds() -> None:
    assert [grade(x, 1.0, 3.0) for x in (0.0, 2.0, 9.0, NAN)] == [0.0, 0.5, 1.0, 0.0]
    assert together([]) == 0.0
    assert together([0.5, 0.5]) == 0.75
    assert together([1.0, 1.0]) < 1.0
