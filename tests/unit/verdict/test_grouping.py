"""Middles of groups are those of the plain form, whatever the groups, ties and gaps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.group_rows import LARGEST
from gpuwarden_verdict.grouping import MAD_TO_SIGMA, Grouping
from gpuwarden_verdict.memory import NO_CODE

F32 = npt.NDArray[np.float32]
FEWEST = 3

SIZES = st.lists(st.one_of(st.integers(1, 30), st.sampled_from([48, 65, 129, 512])), max_size=12)
STRANGE = np.array([np.nan, np.inf, -np.inf, 0.0, -7.0, 1e30, -1e30], np.float32)


def middles_of(values: F32) -> tuple[np.float32, np.float32, int]:
    """Median and spread of one group's numbers, and how many these are, the plain way."""
    numbers = np.sort(values[np.isfinite(values)])
    if numbers.size < FEWEST:
        return np.float32(np.nan), np.float32(np.nan), numbers.size
    median = middle_of_sorted(numbers)
    distance = middle_of_sorted(np.sort(np.abs(numbers - median)))
    return median, distance * np.float32(MAD_TO_SIGMA), numbers.size


def middle_of_sorted(numbers: F32) -> np.float32:
    both = numbers[(numbers.size - 1) // 2] + numbers[numbers.size // 2]
    return np.float32(both * np.float32(0.5))


@settings(deadline=None, max_examples=100)
@given(
    sizes=SIZES,
    strangers=st.integers(0, 9),
    tied=st.booleans(),
    odd=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_middles_are_those_of_the_plain_form_to_the_last_bit(
    sizes: list[int], strangers: int, tied: bool, odd: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes) + 1) - 1, [strangers, *sizes]))
    values = rng.normal(3.0, 2.0, codes.size).astype(np.float32)
    values = np.round(values) if tied else values
    strange = rng.random(codes.size) < odd
    values[strange] = rng.choice(STRANGE, int(strange.sum()))
    check(codes, values)


def check(codes: npt.NDArray[np.int64], values: F32) -> None:
    grouping = Grouping(codes, FEWEST)
    found = grouping.middle(values)
    assert np.array_equal(grouping.medians(values), found.median, equal_nan=True)
    median, spread = grouping.per_entity(found.median), grouping.per_entity(found.spread)
    assert median.dtype == spread.dtype == np.float32
    for code in {*codes.tolist(), NO_CODE}:
        own = np.flatnonzero(codes == code)
        if code == NO_CODE or own.size < FEWEST:
            assert np.isnan(median[own]).all() and np.isnan(spread[own]).all()
            continue
        wanted = middles_of(values[own])
        group = int(grouping.group_of[own[0]])
        assert found.count[group] == wanted[2]
        for said, should in ((median, wanted[0]), (spread, wanted[1])):
            assert np.array_equal(said[own], np.full(own.size, should), equal_nan=True)


def test_middles_are_the_same_where_rounding_puts_the_median_off_the_middle() -> None:
    """Two halves as far away as can be told: the one distance exceeds the other by a last bit."""
    low, high = np.float32(1.0), np.nextafter(np.float32(2**24), np.float32(0.0))
    for size in (4, 8, 16, 40, 512):
        values = np.repeat([low, high], size // 2).astype(np.float32)
        check(np.zeros(size, np.int64), values)
        values[1:] += np.float32(1e-3)
        check(np.zeros(size, np.int64), values)


def test_what_is_not_looked_at_in_a_large_group_is_not_counted() -> None:
    values = np.arange(2 * LARGEST, dtype=np.float32)
    values[1::2] = np.nan  # every second one is looked at
    grouping = Grouping(np.zeros(values.size, np.int64), FEWEST)
    assert grouping.middle(values).count[0] == LARGEST
    values[1::2], values[0::2] = values[0::2].copy(), np.nan
    found = grouping.middle(values)
    assert np.array_equal(grouping.medians(values), found.median, equal_nan=True)
    assert found.count[0] == 0
    assert np.isnan(found.median).all()
    values[1::2] = np.nan
    assert np.isnan(grouping.middle(values).spread).all(), "nothing was read at all"
