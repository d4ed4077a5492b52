"""Whether a probability means what it says: Brier skill, and predicted beside observed by bin.

A score sees what shows. Of faults that show nothing yet, which are most where faults come hundreds
of times as often as in life, it can know only how many there are: that chance is counted on the
tuning recordings and added. The skill of the bare score stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpuwarden_models.datasets import Dataset
from gpuwarden_models.evaluation.scorers import Scorer

EDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
RISKY, FEWEST_INCIDENTS, TOLERANCE = 0.1, 30, 0.10
"""A bin from RISKY on with so many incidents must agree to TOLERANCE."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows of one range of probability.

    Attributes:
        low: Its lower edge.
        high: Its upper edge.
        rows: Rows.
        predicted: Sum of their probabilities.
        observed: Rows that needed action within the horizon.
        incidents: Faults that any of them belongs to.
    """

    low: float
    high: float
    rows: int
    predicted: float
    observed: int
    incidents: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """One kind of entity on one set.

    Attributes:
        rows: Rows.
        positive: Rows that needed action within the horizon.
        brier: Mean squared error, the chance of what shows nothing added.
        skill: 1 - Brier / Brier of the base rate; None where all or no rows are positive.
        bins: By probability.
        bare_brier: Mean squared error of the score as it is.
        bare_skill: Of that.
    """

    rows: int
    positive: int
    brier: float
    skill: float | None
    bins: tuple[Bin, ...]
    bare_brier: float
    bare_skill: float | None


def chance_of(datasets: Sequence[Dataset]) -> float:
    """Share of rows that show nothing in which action is needed within the horizon all the same."""
    hidden = sum(int((one.usable & one.traceless).sum()) for one in datasets)
    calm = sum(int((one.usable & ~one.needed).sum()) for one in datasets)
    return hidden / (hidden + calm) if hidden + calm else 0.0


def calibration(dataset: Dataset, scorer: Scorer, chance_unseen: float = 0.0) -> Calibration:
    """Measure a score on the rows that count: entities that answer, no precursor too far off.

    Args:
        dataset: The rows.
        scorer: Gives a probability of each.
        chance_unseen: Of needing action though nothing shows it (`chance_of` other recordings).
    """
    rows = np.flatnonzero(dataset.usable)
    truth = dataset.needed[rows]
    bare = scorer(dataset.matrix[rows])
    chance = 1.0 - (1.0 - chance_unseen) * (1.0 - bare)
    case = _cases(dataset)[rows]
    base = float(truth.mean()) if truth.size else 0.0
    brier, bare_brier = (
        float(np.mean((one - truth) ** 2)) if truth.size else 0.0 for one in (chance, bare)
    )
    place = np.clip(np.searchsorted(EDGES, chance, side="right") - 1, 0, len(EDGES) - 2)
    return Calibration(
        rows=int(truth.size),
        positive=int(truth.sum()),
        brier=brier,
        skill=_skill(brier, base),
        bare_brier=bare_brier,
        bare_skill=_skill(bare_brier, base),
        bins=tuple(
            Bin(
                low,
                high,
                int((place == number).sum()),
                float(chance[place == number].sum()),
                int(truth[place == number].sum()),
                int(np.unique(case[(place == number) & (case >= 0)]).size),
            )
            for number, (low, high) in enumerate(pairwise(EDGES))
        ),
    )


def _skill(brier: float, base: float) -> float | None:
    return 1.0 - brier / (base * (1.0 - base)) if 0.0 < base < 1.0 else None


def _cases(dataset: Dataset) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Fault that each row belongs to, -1 for none, shape (N,)."""
    found = np.full(dataset.entity.size, -1, np.int64)
    for number, case in enumerate(dataset.cases):
        own = dataset.rows_of(case.entity)
        within = dataset.needed[own] & (dataset.at[own] < case.end)
        found[own] = np.where(within & (found[own] < 0), number, found[own])
    return found


def off_bins(bins: Sequence[Bin]) -> tuple[list[Bin], list[Bin]]:
    """Bins that the bar speaks of, and those of them that are off."""
    judged = [one for one in bins if one.low >= RISKY and one.incidents >= FEWEST_INCIDENTS]
    off = [one for one in judged if abs(one.predicted - one.observed) > TOLERANCE * one.rows]
    return judged, off


def summed(parts: Sequence[Calibration]) -> Calibration:
    """Several recordings as one; the skill is against the base rate of all."""
    rows, positive = sum(one.rows for one in parts), sum(one.positive for one in parts)
    brier = sum(one.brier * one.rows for one in parts) / rows if rows else 0.0
    bare = sum(one.bare_brier * one.rows for one in parts) / rows if rows else 0.0
    base = positive / rows if rows else 0.0
    bins = tuple(
        Bin(
            some[0].low,
            some[0].high,
            sum(one.rows for one in some),
            sum(one.predicted for one in some),
            sum(one.observed for one in some),
            sum(one.incidents for one in some),
        )
        for some in zip(*(one.bins for one in parts), strict=True)
    )
    return Calibration(rows, positive, brier, _skill(brier, base), bins, bare, _skill(bare, base))
