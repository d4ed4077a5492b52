"""Whether a GPU works: what some readings mean depends on it."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.detectors.reading import Bool
from gpuwarden_verdict.windows import KindView

UTILIZATION = "gpu_utilization_ratio"
POWER, POWER_LIMIT = "gpu_power_watts", "gpu_power_limit_watts"

BUSY = 0.5
"""Mean utilisation of the last minute from which a GPU is under load."""
BUSY_POWER = 0.4
"""Of its power limit, where utilisation is not given (MIG): no idle GPU draws so much (an idle H100
with a context draws 115 of 700 W)."""


def under_load(view: KindView) -> Bool:
    """GPUs that worked through the last minute and still do, shape (N,)."""
    return view.remembered("under_load", lambda: _under_load(view))


def _under_load(view: KindView) -> Bool:
    used, limit = view.last(UTILIZATION), view.last(POWER_LIMIT)
    with np.errstate(invalid="ignore"):
        by_use = (view.ewma_fast(UTILIZATION) >= BUSY) & (used >= BUSY)
        by_power = (view.ewma_fast(POWER) >= BUSY_POWER * limit) & np.isnan(used)
    loaded: Bool = by_use | by_power
    return loaded
