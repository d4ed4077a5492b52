"""Groups of peers and their robust middle."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.memory import NO_CODE
from gpuwarden_verdict.windows import KindView
from gpuwarden_verdict.windows.planes import F64, I64, AnyArray
from gpuwarden_wire.metrics import EntityKind

UNKNOWN_GROUP = NO_CODE
"""Group of entities that are compared with nobody."""


def model_codes(view: KindView, fleet: FleetContext) -> I64:
    """A number a product name, int64, shape (N,); UNKNOWN_GROUP where the model is not known."""
    return fleet.memory.codes(view, "models", fleet.models)


def group_median(values: AnyArray, groups: I64, fewest: int) -> F64:
    """Median of each entity's group, float64, shape (N,).

    NaN where the group is unknown or has fewer than `fewest` numbers.
    """
    grouping = Grouping(groups, fewest)
    of_group = grouping.medians(values.astype(np.float32))
    return grouping.per_entity(of_group).astype(np.float64)


def medians_of_models(
    values: AnyArray, view: KindView, fleet: FleetContext, fewest: int
) -> tuple[Grouping, F64]:
    """The models as groups, laid out once, and the median of each; NaN as in `group_median`."""
    grouping = fleet.memory.lasting(
        ("grouping", EntityKind.GPU, "models", fewest),
        model_codes(view, fleet),
        lambda codes: Grouping(codes, fewest),
    )
    return grouping, grouping.medians(values.astype(np.float32)).astype(np.float64)


def group_highest(values: AnyArray, groups: I64) -> F64:
    """Highest number of each entity's group, float64, shape (N,); its own where none is known."""
    highest = np.asarray(values, np.float64).copy()
    known = (groups != UNKNOWN_GROUP) & ~np.isnan(highest)
    if not known.any():
        return highest
    of_group = np.full(int(groups.max()) + 1, -np.inf)
    np.maximum.at(of_group, groups[known], highest[known])
    highest[known] = of_group[groups[known]]
    return highest
