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

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.artifact import FusionModel
    from gpuwarden_verdict.fusion.trees import Trees

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

_ROWS_AT_ONCE = 16  # rows x leaves x conditions stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class PathTable:
    """Every leaf with the conditions on its path, merged to one a feature.

    L leaves, M = most features on a path; unused places have `share` 1 and hold for every row, so
    that their Shapley value is 0.

    Attributes:
        feature: Column of each condition, shape (L, M); 0 in unused places.
        above: The value must be > this, shape (L, M); -inf where there is no lower limit.
        below: The value must be <= this; +inf where there is no upper limit.
        missing_passes: Whether NaN meets the condition.
        share: Share of training rows that meet it on the way down, shape (L, M).
        value: What the leaf adds to the raw score, shape (L,).
        expectation: Mean over training rows of the trees' sum.
    """

    feature: I32
    above: F64
    below: F64
    missing_passes: Bool
    share: F64
    value: F64
    expectation: float


@dataclass(frozen=True, slots=True)
class _Condition:
    above: float = -np.inf
    below: float = np.inf
    missing_passes: bool = True
    share: float = 1.0


_Path = dict[int, _Condition]


def path_table(trees: Trees) -> PathTable:
    """Walk all trees once and lay their leaves' paths into arrays."""
    leaves: list[tuple[float, _Path]] = []
    waiting: list[tuple[int, _Path]] = [(int(root), {}) for root in trees.roots]
    while waiting:
        node, path = waiting.pop()
        if trees.leaf[node]:
            leaves.append((float(trees.value[node]), path))
            continue
        for child, is_left in ((int(trees.left[node]), True), (int(trees.right[node]), False)):
            waiting.append((child, _narrowed(trees, node, child, path, is_left)))
    return _table(leaves)


def contributions(model: FusionModel, matrix: npt.NDArray[np.floating]) -> tuple[F64, float]:
    """Share of each feature in the calibrated log-odds, calibration included as its scale.

    Args:
        model: The model.
        matrix: Features, shape (N, F); NaN where missing.

    Returns:
        float64, shape (N, F), and the intercept: row sum + intercept = log-odds.
    """
    table = model.paths
    parts = [
        _feature_shares(table, matrix[first : first + _ROWS_AT_ONCE].astype(np.float64))
        for first in range(0, matrix.shape[0], _ROWS_AT_ONCE)
    ]
    shares = np.concatenate(parts) if parts else np.zeros(matrix.shape)
    intercept = model.slope * (model.baseline + table.expectation) + model.offset
    return model.slope * shares, intercept


def _narrowed(trees: Trees, node: int, child: int, path: _Path, is_left: bool) -> _Path:
    """The path with one more split; a feature met before keeps one merged condition."""
    feature, limit = int(trees.feature[node]), float(trees.threshold[node])
    before = path.get(feature, _Condition())
    share = before.share * float(trees.cover[child] / trees.cover[node])
    missing = before.missing_passes and bool(trees.missing_left[node]) == is_left
    if is_left:
        after = _Condition(before.above, min(before.below, limit), missing, share)
    else:
        after = _Condition(max(before.above, limit), before.below, missing, share)
    return {**path, feature: after}


def _table(leaves: list[tuple[float, _Path]]) -> PathTable:
    most = max((len(path) for _, path in leaves), default=0)
    shape = (len(leaves), max(most, 1))
    table = PathTable(
        feature=np.zeros(shape, dtype=np.int32),
        above=np.full(shape, -np.inf),
        below=np.full(shape, np.inf),
        missing_passes=np.ones(shape, dtype=np.bool_),
        share=np.ones(shape),
        value=np.array([value for value, _ in leaves]),
        expectation=sum(
            value * float(np.prod([c.share for c in path.values()])) for value, path in leaves
        ),
    )
    for row, (_, path) in enumerate(leaves):
        for place, (feature, condition) in enumerate(path.items()):
            table.feature[row, place] = feature
            table.above[row, place] = condition.above
            table.below[row, place] = condition.below
            table.missing_passes[row, place] = condition.missing_passes
            table.share[row, place] = condition.share
    return table


def _feature_shares(table: PathTable, rows: F64) -> F64:
    """Shapley values summed by feature, shape of `rows`."""
    features = rows.shape[1]
    place = np.arange(rows.shape[0])[:, None] * features + table.feature.T.ravel()
    values = _shapley_values(table, rows).transpose(1, 0, 2).ravel()
    return np.bincount(place.ravel(), values, rows.size).astype(np.float64).reshape(rows.shape)


def _shapley_values(table: PathTable, rows: F64) -> F64:
    """Shapley value of each condition of each leaf, shape (M, rows, L).

    A leaf's game is v(S) = value x product over j of (meets_j if j in S else share_j). Its Shapley
    value of i is value x (meets_i - share_i) x the integral over t from 0 to 1 of the product over
    j != i of (share_j (1 - t) + meets_j t): each player comes in at a random moment t. That is a
    polynomial of degree M - 1, which Gauss and Legendre integrate exactly. Unused places are
    dummies: share 1 and met, so they get 0 and do not change the others.
    """
    meets = _conditions_met(table, rows)
    share = np.ascontiguousarray(table.share.T)[:, None, :]
    total = np.zeros(meets.shape)
    for moment, weight in _moments(meets.shape[0]):
        absent = share * (1.0 - moment)
        _add_products_of_others(np.where(meets, absent + moment, absent), weight, total)
    total *= table.value
    total *= meets - share
    return total


@cache
def _moments(players: int) -> tuple[tuple[float, float], ...]:
    """Moments in (0, 1) and their weights: exact for polynomials of degree `players` - 1."""
    points, weights = np.polynomial.legendre.leggauss((players + 1) // 2)
    return tuple(zip(((points + 1.0) / 2.0).tolist(), (weights / 2.0).tolist(), strict=True))


def _conditions_met(table: PathTable, rows: F64) -> Bool:
    """Which rows meet which conditions, shape (M, rows, L)."""
    met = np.empty((table.feature.shape[1], rows.shape[0], table.feature.shape[0]), np.bool_)
    for place, feature in enumerate(table.feature.T):
        seen, above = rows[:, feature], table.above[:, place]
        inside = (seen > above) & (seen <= table.below[:, place])
        # A feature at -inf lies left of every limit.
        inside |= np.isneginf(seen) & np.isneginf(above)
        met[place] = np.where(np.isnan(seen), table.missing_passes[:, place], inside)
    return met


def _add_products_of_others(factors: F64, weight: float, total: F64) -> None:
    """Add to each place the product of all factors but its own, times the weight; in place."""
    behind = np.empty_like(factors)
    behind[-1] = weight
    for place in range(len(factors) - 1, 0, -1):
        np.multiply(behind[place], factors[place], out=behind[place - 1])
    before = factors[0].copy()
    total[0] += behind[0]
    for place in range(1, len(factors)):
        behind[place] *= before
        total[place] += behind[place]
        before *= factors[place]
