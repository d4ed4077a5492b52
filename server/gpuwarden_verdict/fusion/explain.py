"""Why a score is what it is: exact Shapley values of the trees.

Of the two usual ways, crediting each split on the row's path (Saabas) favours features near the
leaves and can blame a feature that the others made irrelevant; Shapley values treat all features
alike and stay consistent when a model leans more on a feature, which is what a person asked to
exclude a GPU needs. They are exact here and cheap: a tree's value is a sum over leaves, and each
leaf is a product of one factor a feature on its path, whose Shapley values have a closed form.

The expectation over missing features follows the training rows' cover (path-dependent TreeSHAP;
Lundberg et al., From local explanations to global understanding with explainable AI for trees,
Nature Machine Intelligence 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.artifact import FusionModel
    from gpuwarden_verdict.fusion.trees import Trees

F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]


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
    shares = np.zeros((matrix.shape[0], matrix.shape[1]))
    for row in range(matrix.shape[0]):
        values = _shapley_values(table, matrix[row].astype(np.float64))
        np.add.at(shares[row], table.feature.ravel(), values.ravel())
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


def _shapley_values(table: PathTable, row: F64) -> F64:
    """Shapley value of each condition of each leaf, shape (L, M).

    A leaf's game is v(S) = value x product over j of (meets_j if j in S else share_j). Its Shapley
    value of i is value x (meets_i - share_i) x sum over k of k! (M-1-k)! / M! x c_k, where c_k is
    the coefficient of t^k in the product over j != i of (share_j + meets_j t). Unused places are
    dummies: share 1 and met, so they get 0 and do not change the others.
    """
    seen = row[table.feature]
    inside = (seen > table.above) & (seen <= table.below)
    # A feature at -inf lies left of every limit.
    inside |= np.isneginf(seen) & np.isneginf(table.above)
    meets = np.where(np.isnan(seen), table.missing_passes, inside).astype(np.float64)
    places = meets.shape[1]
    weights = [factorial(k) * factorial(places - 1 - k) / factorial(places) for k in range(places)]
    result = np.empty_like(meets)
    for place in range(places):
        coefficients = [np.ones(meets.shape[0])]
        for other in range(places):
            if other != place:
                coefficients = _times(coefficients, table.share[:, other], meets[:, other])
        total = sum(weight * c for weight, c in zip(weights, coefficients, strict=True))
        result[:, place] = table.value * (meets[:, place] - table.share[:, place]) * total
    return result


def _times(coefficients: list[F64], constant: F64, linear: F64) -> list[F64]:
    """Coefficients of a polynomial in t times (constant + linear t), lowest power first."""
    product = [c * constant for c in coefficients] + [np.zeros_like(constant)]
    for power, coefficient in enumerate(coefficients):
        product[power + 1] = product[power + 1] + coefficient * linear
    return product
