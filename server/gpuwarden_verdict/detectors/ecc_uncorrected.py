"""Uncorrected ECC errors: the counter rose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.reading import fresh, hits, level_signal
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_wire.metrics import EntityKind

METRIC = "gpu_ecc_uncorrected_volatile_total"
RECENT_S = 120.0
"""A rise is told within this time of happening, and not again after a reset or a check."""
_ROSE = 0.5
"""Less than one error, decayed over RECENT_S: anything above is a rise by at least one."""
MANY = 3.0
"""Errors of a day from which memory is failing and not hit once by chance (assumed)."""
_SCORE_ONE, _SCORE_MANY = 0.6, 0.85


class EccUncorrectedDetector:
    """Signals of a rise of the volatile uncorrected count. It ends with a reset or reboot."""

    name = "ecc_uncorrected"
    version = 1
    about = About(
        Plane.COUNTERS,
        (METRIC,),
        "uncorrected memory errors",
        f"one more; {MANY:.0f} within a day exclude",
        Rung.EXCLUDE,
        "a reboot, a reset that a check saw, or a passed check",
    )
    speaks_for: frozenset[str] = frozenset()  # a counter that stands still is no recovery

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a GPU whose count rose within RECENT_S."""
        view = state.view(EntityKind.GPU)
        rise, day = view.increment_1h(METRIC), view.increment_24h(METRIC)
        changed_at = view.last_change_at(METRIC)
        with np.errstate(invalid="ignore"):
            recent = view.last_seen_at() - changed_at <= RECENT_S
            rose = (rise > _ROSE) & (view.last(METRIC) > 0)  # a reset to 0 is a change, not a rise
            mask = fresh(state, view, METRIC, fleet) & recent & rose
        return [
            self._signal(ref, float(day[row]), float(changed_at[row]), fleet)
            for row, ref in hits(view, mask)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """None: only a reset, a reboot or a check speaks for recovery."""
        return []

    def _signal(self, ref: EntityRef, day: float, changed_at: float, fleet: FleetContext) -> Signal:
        many = day >= MANY - _ROSE
        return level_signal(
            ref,
            changed_at,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.MEMORY,
            score=_SCORE_MANY if many else _SCORE_ONE,
            severity=Severity.ERROR,
            sentence=f"uncorrected ECC errors on GPU {ref.key}: about {max(1.0, day):.0f} in 24 h",
            numbers={"increment_24h": day},
            thresholds={"increment_24h": MANY},
            persistence=Persistence.BOOT,
            action=RecommendedAction.RESET_GPU,
            boot_id=fleet.boot_ids.get(ref.node_id, ""),
        )
