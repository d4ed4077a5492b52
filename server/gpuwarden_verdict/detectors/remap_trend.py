"""Rows remapped one after another, week after week, though no XID was ever logged for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

CORRECTABLE = "gpu_rows_remapped_correctable_total"
UNCORRECTABLE = "gpu_rows_remapped_uncorrectable_total"

MOST_ROWS = 512.0
"""Remaps that a GPU has in all: NVIDIA, GPU Memory Error Management, "Row remapping"."""
MANY_ROWS = MOST_ROWS / 4
"""A quarter of them: told however long ago it was (assumed)."""
FEW_ROWS = 16.0
"""Sound GPUs have none or a few for life (Delta: 95 remap events on 448 GPUs in 855 days); from
here on each further one within QUIET_S is told (assumed)."""
A_DAY = 2.5
"""Decayed over a day, three in a row reach it: Delta's GPUs had one in eleven years each."""
QUIET_S = 7 * DAY_S
_SCORE_DAY, _SCORE_FEW, _SCORE_MANY = 0.45, 0.4, 0.6
_MAX_RUNG = Rung.SUSPECT
"""Each row was replaced in time: the part wears out, and works."""


@dataclass(frozen=True, slots=True)
class _Wear:
    """Remapped rows of all GPUs, each shape (N,).

    Attributes:
        rows: For either cause.
        day: Growth of the last day, decayed.
        quiet_s: For how long there were no more.
    """

    rows: F32
    day: F32
    quiet_s: F32

    def worn(self) -> Bool:
        """Where it is worth telling."""
        with np.errstate(invalid="ignore"):
            going_on = self.quiet_s < QUIET_S
            often = (self.day >= A_DAY) & going_on
            grown = (self.rows >= FEW_ROWS) & (self.day > 0) & going_on
            worn: Bool = often | grown | (self.rows >= MANY_ROWS)
        return worn


class RemapTrendDetector:
    """Signals of GPUs whose rows are remapped again and again.

    254 correctable remaps over weeks may bring no XID at all before the GPU vanishes: the count
    itself must speak long before.
    """

    name = "remap_trend"
    version = 1
    speaks_for = frozenset({"remap_trend"})
    about = About(
        Plane.COUNTERS,
        (CORRECTABLE, UNCORRECTABLE),
        "the memory wears out: row after row is remapped",
        f"three rows within a day, or >= {FEW_ROWS:.0f} and one more within "
        f"{QUIET_S / DAY_S:.0f} days, or >= {MANY_ROWS:.0f} of {MOST_ROWS:.0f}",
        _MAX_RUNG,
        f"no further row for {QUIET_S / DAY_S:.0f} days, below {MANY_ROWS:.0f}; or a passed check",
    )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU."""
        view = state.view(EntityKind.GPU)
        wear = _wear(view)
        worn = wear.worn()
        if not worn.any():
            return []
        worn &= _read(state, view, fleet)
        return [self._signal(ref, row, wear, now) for row, ref in hits(view, worn)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """GPUs with few remapped rows, or none more for long."""
        view = state.view(EntityKind.GPU)
        wear = _wear(view)
        return clear_recoveries(
            state,
            EntityKind.GPU,
            entities,
            _read(state, view, fleet) & ~wear.worn(),
            self.speaks_for,
            now,
            lambda row: f"{wear.rows[row]:.0f} remapped rows, and no more of them",
        )

    def _signal(self, ref: EntityRef, row: int, wear: _Wear, now: float) -> Signal:
        rows, day = float(wear.rows[row]), float(wear.day[row])
        score = _SCORE_DAY if day >= A_DAY else _SCORE_FEW
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.MEMORY,
            score=_SCORE_MANY if rows >= MANY_ROWS else score,
            severity=Severity.WARNING,
            sentence=f"{rows:.0f} of {MOST_ROWS:.0f} spare memory rows of GPU {ref.key} are used "
            f"up, about {day:.0f} of them within a day",
            numbers={"rows_remapped": rows, "rows_remapped_24h": day},
            thresholds={"rows_remapped": FEW_ROWS, "rows_remapped_24h": A_DAY},
            action=RecommendedAction.INVESTIGATE,
            max_rung=_MAX_RUNG,
        )


def _read(state: FleetReading, view: KindView, fleet: FleetContext) -> Bool:
    read: Bool = fresh(state, view, CORRECTABLE, fleet)
    read |= fresh(state, view, UNCORRECTABLE, fleet)
    return read


def _wear(view: KindView) -> _Wear:
    corrected, uncorrected = view.last(CORRECTABLE), view.last(UNCORRECTABLE)
    rows: F32 = np.nan_to_num(corrected) + np.nan_to_num(uncorrected)
    rows[np.isnan(corrected) & np.isnan(uncorrected)] = np.nan
    day = [np.nan_to_num(view.increment_24h(m)) for m in (CORRECTABLE, UNCORRECTABLE)]
    quiet_s = np.fmin(view.steady_s(CORRECTABLE), view.steady_s(UNCORRECTABLE))
    return _Wear(rows, day[0] + day[1], quiet_s)
