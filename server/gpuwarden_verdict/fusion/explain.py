"""Why a score is what it is: exact Shapley values of the trees.

Of the two usual ways, crediting each split on the row's path (Saabas) favours features near the
leaves and can blame a feature that the others made irrelevant; Shapley values treat all features
alike and stay consistent when a model leans more on a feature, which is what a person asked to
exclude a GPU needs. They are exact here and cheap: a tree's value is a sum over leaves, and each
leaf is a product of one factor a feature on its path, whose Shapley values are integrals of
polynomials.

The expectation over missing features follows the training rows' cover (path-dependent TreeSHAP;
Lundberg et al., From local explanations to global understanding with explainable AI for trees,
Nature Machine Intelligence 2020).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.artifact import FusionModel
    from gpuwarden_verdict.fusion.trees import Trees

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 2  # what one table needs for them stays in the processor's cache
_LEAST_SHARE = 1e-30
"""In place of no training row at all: products are divided by their factors."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """All C different conditions on the paths, each on one feature; the first holds for every row.

    Attributes:
        feature: Column, shape (C,).
        above: The value must be > this, shape (C,); -inf where there is no lower limit.
        below: The value must be <= this; +inf where there is no upper limit.
        missing_passes: Whether NaN meets the condition.
    """

    feature: I64
    above: F64
    below: F64
    missing_passes: Bool

    def met(self, rows: F64) -> Bool:
        """Which conditions rows of features (N, F) meet, shape (N, C)."""
        seen = rows.take(self.feature, axis=1)
        inside = (seen > self.above) & (seen <= self.below)
        # A feature at -inf lies left of every limit.
        inside |= np.isneginf(seen) & np.isneginf(self.above)
        return np.where(np.isnan(seen), self.missing_passes, inside)


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """Leaves whose paths have about as many conditions, merged to one a feature.

    L leaves, M = most features on a path, T moments; unused places have `share` 1 and hold for
    every row, so that their Shapley value is 0.

    Attributes:
        condition: Which of `Conditions`, shape (M, L); 0 in unused places.
        feature: Column of each, shape (M, L).
        share: Share of training rows that meet it on the way down, shape (M, L).
        value: What the leaf adds to the raw score, shape (L,).
        absent: Factor of a condition that is not met at each moment, shape (M, T, 1, L).
        present: Factor of one that is.
        weights: Of the moments, shape (T, 1, 1).
    """

    condition: I64
    feature: I64
    share: F64
    value: F64
    absent: F64
    present: F64
    weights: F64


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """Every leaf of the trees with the conditions on its path.

    Attributes:
        conditions: Those of all.
        tables: The leaves, those with paths of about one length together.
        expectation: Mean over training rows of the trees' sum.
    """

    conditions: Conditions
    tables: tuple[PathTable, ...]
    expectation: float


@dataclass(frozen=True, slots=True)
class _Condition:
    feature: int = 0
    above: float = -np.inf
    below: float = np.inf
    missing_passes: bool = True


_Path = dict[int, tuple[_Condition, float]]
"""By feature: the condition, and the share of training rows that meet it."""
_Leaf = tuple[float, _Path]
_ANY = _Condition()


def paths_of(trees: Trees) -> Paths:
    """Walk all trees once and lay their leaves' paths into arrays."""
    leaves: list[_Leaf] = []
    waiting: list[tuple[int, _Path]] = [(int(root), {}) for root in trees.roots]
    while waiting:
        node, path = waiting.pop()
        if trees.leaf[node]:
            leaves.append((float(trees.value[node]), path))
            continue
        for child, is_left in ((int(trees.left[node]), True), (int(trees.right[node]), False)):
            waiting.append((child, _narrowed(trees, node, child, path, is_left)))
    return _paths(leaves)


def contributions(model: FusionModel, matrix: npt.NDArray[np.floating]) -> tuple[F64, float]:
    """Share of each feature in the calibrated log-odds, calibration included as its scale.

    Args:
        model: The model.
        matrix: Features, shape (N, F); NaN where missing.

    Returns:
        float64, shape (N, F), and the intercept: row sum + intercept = log-odds.
    """
    paths = model.paths
    parts = [
        _feature_shares(paths, matrix[first : first + _ROWS_AT_ONCE].astype(np.float64))
        for first in range(0, matrix.shape[0], _ROWS_AT_ONCE)
    ]
    shares = np.concatenate(parts) if parts else np.zeros(matrix.shape)
    intercept = model.slope * (model.baseline + paths.expectation) + model.offset
    return model.slope * shares, intercept


def _narrowed(trees: Trees, node: int, child: int, path: _Path, is_left: bool) -> _Path:
    """The path with one more split; a feature met before keeps one merged condition."""
    feature, limit = int(trees.feature[node]), float(trees.threshold[node])
    before, share = path.get(feature, (_ANY, 1.0))
    share *= float(trees.cover[child] / trees.cover[node])
    missing = before.missing_passes and bool(trees.missing_left[node]) == is_left
    if is_left:
        after = _Condition(feature, before.above, min(before.below, limit), missing)
    else:
        after = _Condition(feature, max(before.above, limit), before.below, missing)
    return {**path, feature: (after, share)}


def _paths(leaves: list[_Leaf]) -> Paths:
    numbers: dict[_Condition, int] = {_ANY: 0}
    by_moments: dict[int, list[_Leaf]] = defaultdict(list)
    expectation = 0.0
    for value, path in leaves:
        for condition, _ in path.values():
            numbers.setdefault(condition, len(numbers))
        by_moments[(len(path) + 1) // 2].append((value, path))
        expectation += value * prod(share for _, share in path.values())
    conditions = Conditions(
        np.array([one.feature for one in numbers], np.int64),
        np.array([one.above for one in numbers]),
        np.array([one.below for one in numbers]),
        np.array([one.missing_passes for one in numbers]),
    )
    tables = (_table(some, numbers) for moments, some in sorted(by_moments.items()) if moments)
    return Paths(conditions, tuple(tables), expectation)


def _table(leaves: list[_Leaf], numbers: dict[_Condition, int]) -> PathTable:
    shape = (max(len(path) for _, path in leaves), len(leaves))
    condition, feature, share = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.ones(shape)
    for leaf, (_, path) in enumerate(leaves):
        for place, (one, of_rows) in enumerate(path.values()):
            condition[place, leaf] = numbers[one]
            feature[place, leaf] = one.feature
            share[place, leaf] = of_rows
    moments, weights = _moments(shape[0])
    absent = np.maximum(share, _LEAST_SHARE)[:, None, None, :] * (1.0 - moments)
    value = np.array([value for value, _ in leaves])
    return PathTable(condition, feature, share, value, absent, absent + moments, weights)


def _feature_shares(paths: Paths, rows: F64) -> F64:
    """Shapley values summed by feature, shape of `rows`."""
    met = paths.conditions.met(rows)
    first = np.arange(rows.shape[0])[:, None] * rows.shape[1]
    total = np.zeros(rows.size)
    for table in paths.tables:
        place = table.feature[:, None, :] + first
        values = _shapley_values(table, met)
        total += np.bincount(place.ravel(), values.ravel(), rows.size)
    return total.reshape(rows.shape)


def _shapley_values(table: PathTable, met: Bool) -> F64:
    """Shapley value of each condition of each leaf, shape (M, rows, L).

    A leaf's game is v(S) = value x product over j of (meets_j if j in S else share_j). Its Shapley
    value of i is value x (meets_i - share_i) x the integral over t from 0 to 1 of the product over
    j != i of (share_j (1 - t) + meets_j t): each player comes in at a random moment t. That is a
    polynomial of degree M - 1, which Gauss and Legendre integrate exactly. Unused places are
    dummies: share 1 and met, so they get 0 and do not change the others.
    """
    meets = met.take(table.condition, axis=1).transpose(1, 0, 2)
    factors = np.where(meets[:, None], table.present, table.absent)
    whole = np.multiply.reduce(factors, axis=0)
    whole *= table.weights
    total: F64 = np.divide(whole, factors, out=factors).sum(axis=1)
    total *= table.value
    total *= meets - table.share[:, None, :]
    return total


def _moments(players: int) -> tuple[F64, F64]:
    """Moments in (0, 1) and their weights: exact for polynomials of degree `players` - 1.

    Each of shape (moments, 1, 1).
    """
    points, weights = np.polynomial.legendre.leggauss((players + 1) // 2)
    return ((points + 1.0) / 2.0)[:, None, None], (weights / 2.0)[:, None, None]
