"""Binomial chances without a library: few calls, exact to float precision."""

from __future__ import annotations

import math
from functools import lru_cache

_CONFIDENCE = 0.95
_STEPS = 60
"""Halvings of the unit interval: to float precision."""


def binomial_at_most(count: int, trials: int, chance: float) -> float:
    """The chance of `count` or fewer of `trials` that each come with `chance`."""
    if count >= trials or chance <= 0.0:
        return 1.0
    if count < 0 or chance >= 1.0:
        return 0.0
    terms = (_log_term(hits, trials, chance) for hits in range(count + 1))
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def binomial_quantile(trials: int, chance: float, quantile: float) -> int:
    """The smallest count that is not exceeded with a chance of `quantile`."""
    if not 0.0 < chance < 1.0:
        return trials if chance >= 1.0 else 0
    total = 0.0
    for count in range(trials):
        total += math.exp(_log_term(count, trials, chance))
        if total >= quantile:
            return count
    return trials


@lru_cache(maxsize=1024)
def exact_interval(count: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a share after Clopper and Pearson; (0, 1) without a trial."""
    if trials == 0:
        return 0.0, 1.0
    tail = (1.0 - _CONFIDENCE) / 2.0
    low = 0.0 if count == 0 else _share_where(count - 1, trials, 1.0 - tail)
    high = 1.0 if count == trials else _share_where(count, trials, tail)
    return low, high


def _share_where(count: int, trials: int, wanted: float) -> float:
    """The share under which `count` or fewer come with the chance that is wanted."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if binomial_at_most(count, trials, middle) > wanted:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _log_term(hits: int, trials: int, chance: float) -> float:
    ways = math.lgamma(trials + 1) - math.lgamma(hits + 1) - math.lgamma(trials - hits + 1)
    return ways + hits * math.log(chance) + (trials - hits) * math.log1p(-chance)
