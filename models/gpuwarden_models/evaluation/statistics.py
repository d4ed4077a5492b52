"""Intervals: what a count can and cannot say."""

from __future__ import annotations

from math import nan, sqrt

import numpy as np
from numpy.typing import NDArray

from gpuwarden_verdict.fusion.gate import poisson_upper

Interval = tuple[float, float]
BOOTSTRAP_ROUNDS = 400
_Z95 = 1.959964


def wilson(hits: int, tries: int) -> Interval:
    """95 % interval of a share; (nan, nan) where nothing was tried."""
    if tries <= 0:
        return nan, nan
    share, z2 = hits / tries, _Z95**2
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z95 / (1 + z2 / tries) * sqrt(share * (1 - share) / tries + z2 / (4 * tries**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def rate_bound(count: int, time_at_risk: float) -> float:
    """Exact upper 95 % Poisson bound of a rate; infinite without any time at risk."""
    return poisson_upper(count) / time_at_risk if time_at_risk > 0 else float("inf")


def bootstrap_share(
    numerator: NDArray[np.float64],
    denominator: NDArray[np.float64],
    unit: NDArray[np.int64],
    seed: int,
    rounds: int = BOOTSTRAP_ROUNDS,
) -> Interval:
    """95 % interval of sum(numerator) / sum(denominator) where whole units are drawn anew.

    Args:
        numerator: Of each row, shape (N,).
        denominator: Of each row, shape (N,).
        unit: Node, place or part of each row, shape (N,): rows of one hang together.
        seed: Draws.
        rounds: Number of draws.
    """
    if unit.size == 0 or rounds == 0:
        return nan, nan
    _, own = np.unique(unit, return_inverse=True)
    units = int(own.max()) + 1
    above = np.bincount(own, weights=numerator, minlength=units)
    below = np.bincount(own, weights=denominator, minlength=units)
    rng = np.random.default_rng(seed)
    shares = np.full(rounds, nan)
    for number in range(rounds):
        drawn = rng.multinomial(units, np.full(units, 1.0 / units))
        total = float(drawn @ below)
        shares[number] = float(drawn @ above) / total if total > 0 else nan
    shares = shares[~np.isnan(shares)]
    if shares.size == 0:
        return nan, nan
    low, high = np.quantile(shares, (0.025, 0.975))
    return float(low), float(high)
