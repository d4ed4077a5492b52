"""Groups of peers and their robust middle."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.windows import KindView
from gpuwarden_verdict.windows.planes import F32, I64, AnyArray

__all__ = ["NO_CODE", "group_median", "model_codes"]


def model_codes(view: KindView, fleet: FleetContext) -> I64:
    """A number a product name, int64, shape (N,); NO_CODE where the model is not known."""
    models = fleet.models
    return fleet.memory.codes(view, "models", models, lambda ref: models.get(ref.key, ""))


def group_median(values: AnyArray, groups: I64, fewest: int) -> F32:
    """Median of each entity's group, float32, shape (N,).

    NaN where the group is unknown or has fewer than `fewest` numbers.
    """
    grouping = Grouping(groups, fewest)
    return grouping.per_entity(grouping.middle(values.astype(np.float32)).median)
