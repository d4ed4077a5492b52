"""From features to calibrated log-odds and probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from gpuwarden_verdict.fusion.artifact import FusionModel

F64 = npt.NDArray[np.float64]

_ROWS_AT_ONCE = 1024  # rows x trees of words stay in the processor's cache


def log_odds(model: FusionModel, matrix: npt.NDArray[np.floating]) -> F64:
    """Calibrated log-odds of needing action within the horizon.

    Args:
        model: The model.
        matrix: Features, shape (N, F), columns as `model.features`; NaN where missing.

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


def probability(odds: F64) -> F64:
    """Probability of log-odds, float64, same shape; exact at both ends, no overflow."""
    small = np.exp(-np.abs(odds))
    result: F64 = np.where(odds >= 0, 1.0, small) / (1.0 + small)
    return result


def logit(chance: float) -> float:
    """Log-odds of a probability strictly between 0 and 1."""
    return float(np.log(chance) - np.log1p(-chance))
