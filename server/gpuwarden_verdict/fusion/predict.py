"""From features to calibrated log-odds and probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.artifact import FusionModel

F64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_FEATURES = FEATURE_SETS[EntityKind.GPU].features
_ROWS_AT_ONCE = 1024  # rows x trees of words stay in the processor's cache
_SHARES = (0.999, 0.99, 0.95, 0.8)  # of the rows that a bound is above of, in each feature


def log_odds(model: FusionModel, matrix: npt.NDArray[np.floating]) -> F64:
    """Calibrated log-odds of needing action within the horizon.

    Args:
        model: The model.
        matrix: Features, shape (N, F), columns as the model's feature set; NaN where missing.

    Returns:
        float64, shape (N,).
    """
    parts = [
        model.trees.sum_of_leaves(matrix[first : first + _ROWS_AT_ONCE])
        for first in range(0, matrix.shape[0], _ROWS_AT_ONCE)
    ]
    leaves = np.concatenate(parts) if parts else np.empty(0)
    odds: F64 = model.slope * (model.baseline + leaves) + model.offset
    return odds


def rows_from(model: FusionModel, matrix: npt.NDArray[np.floating], level: float) -> Bool:
    """Rows whose log-odds are `level` or more, shape (N,): `log_odds(model, matrix) >= level`.

    A larger value never lowers the risk (`features`). So where a row that is as bad as all but the
    worst in every feature stays below the level, every row that is no worse in any does too, and
    need not be scored: in a healthy fleet that is nearly all. Only rows that miss the same features
    are compared.
    """
    if matrix.shape[0] <= _ROWS_AT_ONCE or any(feature.monotone != 1 for feature in _FEATURES):
        return log_odds(model, matrix) >= level
    found = np.zeros(matrix.shape[0], np.bool_)
    missing = np.isnan(matrix)
    patterns = missing @ (1 << np.arange(matrix.shape[1], dtype=np.int64))
    for pattern in np.unique(patterns):
        rows = np.flatnonzero(patterns == pattern)
        alike = matrix[rows]
        bound = _low_bound(model, alike, level)
        if bound is not None:
            rows = rows[~((alike <= bound) | missing[rows]).all(axis=1)]
        found[rows] = log_odds(model, matrix[rows]) >= level
    return found


def _low_bound(
    model: FusionModel, alike: npt.NDArray[np.floating], level: float
) -> npt.NDArray[np.floating] | None:
    """Features, shape (F,), that are below the level together; None where none was found."""
    for share in _SHARES:
        place = int(share * (alike.shape[0] - 1))
        bound: npt.NDArray[np.floating] = np.partition(alike, place, axis=0)[place]
        if log_odds(model, bound[None, :])[0] < level:
            return bound
    return None


def probability(odds: F64) -> F64:
    """Probability of log-odds, float64, same shape; exact at both ends, no overflow."""
    small = np.exp(-np.abs(odds))
    result: F64 = np.where(odds >= 0, 1.0, small) / (1.0 + small)
    return result


def logit(chance: float) -> float:
    """Log-odds of a probability strictly between 0 and 1."""
    return float(np.log(chance) - np.log1p(-chance))
