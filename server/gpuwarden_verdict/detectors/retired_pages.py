"""Retired memory pages of parts before Ampere: near the end of the table, or one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.making import DAY_S
from gpuwarden_verdict.detectors.reading import Bool, clear_recoveries, fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

CORRECTED = "gpu_retired_pages_corrected_total"
UNCORRECTED = "gpu_retired_pages_uncorrected_total"

MOST = 60.0
"""The table holds 64 ("Row remapping": "a maximum of 64 retirements"); DCGM fails a GPU beyond 63
(DCGM_LIMIT_MAX_RETIRED_PAGES). From here on replacement is planned, not awaited."""
SOFT = 15.0
"""From this many on each further page counts (DCGM_LIMIT_MAX_RETIRED_PAGES_SOFT_LIMIT)."""
SOFT_S = 7 * DAY_S
"""A further page within a week: DCGM's rate beyond the soft limit."""
_SCORE_MOST, _SCORE_SOFT = 0.85, 0.5


class RetiredPagesDetector:
    """Signals of GPUs with nearly as many retired pages as there may be, or ever more of them."""

    name = "retired_pages"
    version = 1
    speaks_for = frozenset({"retired_pages"})
    about = About(
        Plane.COUNTERS,
        (CORRECTED, UNCORRECTED),
        "the memory of a part before Ampere wears out",
        f">= {MOST:.0f} pages, or >= {SOFT:.0f} and one more within {SOFT_S / DAY_S:.0f} days",
        Rung.EXCLUDE,
        "no further page for a week where it was that, else a repair; or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        pages = _pages(view)
        worn = _worn(view, pages)
        if not worn.any():
            return []
        worn &= fresh(state, view, CORRECTED, fleet) | fresh(state, view, UNCORRECTED, fleet)
        return [self._signal(ref, float(pages[row]), now) for row, ref in hits(view, worn)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs that have few pages retired, or no more of them for a week."""
        view = state.view(EntityKind.GPU)
        pages = _pages(view)
        read = fresh(state, view, CORRECTED, fleet) | fresh(state, view, UNCORRECTED, fleet)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            read & ~_worn(view, pages),
            self.speaks_for,
            now,
            lambda row: f"{pages[row]:.0f} retired pages, and no more of them",
        )

    def _signal(self, ref: EntityRef, pages: float, now: float) -> Signal:
        most = pages >= MOST
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.MEMORY,
            score=_SCORE_MOST if most else _SCORE_SOFT,
            severity=Severity.ERROR if most else Severity.WARNING,
            sentence=f"{pages:.0f} memory pages of GPU {ref.key} are retired, 64 may be",
            numbers={"retired_pages": pages},
            thresholds={"retired_pages": MOST if most else SOFT},
            action=RecommendedAction.REPAIR if most else RecommendedAction.INVESTIGATE,
            max_rung=Rung.EXCLUDE if most else Rung.SUSPECT,
        )


def _pages(view: KindView) -> F32:
    """Retired pages for either cause, shape (N,); NaN where neither is read."""
    corrected, uncorrected = view.last(CORRECTED), view.last(UNCORRECTED)
    neither = np.isnan(corrected) & np.isnan(uncorrected)
    pages: F32 = np.nan_to_num(corrected) + np.nan_to_num(uncorrected)
    pages[neither] = np.nan
    return pages


def _worn(view: KindView, pages: F32) -> Bool:
    with np.errstate(invalid="ignore"):
        grown = np.fmax(view.increment_24h(CORRECTED), view.increment_24h(UNCORRECTED)) > 0
        lately = np.fmin(view.steady_s(CORRECTED), view.steady_s(UNCORRECTED)) < SOFT_S
        worn: Bool = (pages >= MOST) | ((pages >= SOFT) & grown & lately)
    return worn
