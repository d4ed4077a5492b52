"""Groups of peers and their robust middle: one np.partition a group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.windows import KindView
from gpuwarden_verdict.windows.planes import F64, I64, AnyArray

UNKNOWN_GROUP = -1


def model_codes(view: KindView, fleet: FleetContext) -> I64:
    """A number a product name, int64, shape (N,); UNKNOWN_GROUP where the model is not known."""
    return view.remembered("model_codes", lambda: _model_codes(view, fleet.models))


def _model_codes(view: KindView, models: Mapping[str, str]) -> I64:
    codes: dict[str, int] = {}
    named = (models.get(ref.key, "") for ref in view.refs)
    numbers = (codes.setdefault(name, len(codes)) if name else UNKNOWN_GROUP for name in named)
    return np.fromiter(numbers, np.int64, count=len(view))


def middle(values: AnyArray) -> float:
    """Upper median without NaN, by np.partition; NaN where there is no number."""
    numbers = values[~np.isnan(values)]
    if numbers.size == 0:
        return float("nan")
    rank = numbers.size // 2
    return float(np.partition(numbers, rank)[rank])


def group_median(values: AnyArray, groups: I64, fewest: int) -> F64:
    """Median of each entity's group, float64, shape (N,).

    NaN where the group is unknown or has fewer than `fewest` numbers.
    """
    medians = np.full(values.shape, np.nan)
    for group in np.unique(groups[groups != UNKNOWN_GROUP]):
        members = np.flatnonzero(groups == group)
        inside = values[members]
        if np.count_nonzero(~np.isnan(inside)) >= fewest:
            medians[members] = middle(inside)
    return medians
