"""A reading that is a condition by itself: it is beyond a fixed limit, or it is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import CLEARED_BY, About
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_wire.metrics import EntityKind

_NAMES = {EntityKind.GPU: "GPU", EntityKind.NIC: "NIC"}


@dataclass(frozen=True, slots=True)
class StateDetector:
    """Signals where a reading is beyond a limit; not supported is no state.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: The reading.
        fault_class: Where the fault lies.
        score: 0..1 beyond the limit.
        severity: Urgency beyond the limit.
        says: What it means, in words.
        limit: From this number on it is told.
        below: Whether it is told at or below the limit instead.
        persistence: LEVEL: gone when the reading is; PART: needs a repair.
        action: Recommended.
        acts_alone: May decide by itself.
        max_rung: Highest rung it may support.
        held_s: How long the very same number must have been read, seconds; 0 takes one reading.
        after_boot: Whether it is told in the grace after a boot, when links train.
        kind: What it speaks about.
        plane: Kind of evidence.
    """

    name: str
    version: int
    metric: str
    fault_class: FaultClass
    score: float
    severity: Severity
    says: str
    limit: float = 1.0
    below: bool = False
    persistence: Persistence = Persistence.LEVEL
    action: RecommendedAction = RecommendedAction.INVESTIGATE
    acts_alone: bool = False
    max_rung: Rung = Rung.EXCLUDE
    held_s: float = 0.0
    after_boot: bool = True
    kind: EntityKind = EntityKind.GPU
    plane: Plane = Plane.COUNTERS

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        held = f" for {self.held_s:.0f} s" if self.held_s else ""
        grace = "" if self.after_boot else ", not in the grace after a boot"
        return About(
            self.plane,
            (self.metric,),
            self.says,
            f"{'<=' if self.below else '>='} {self.limit:g}{held}{grace}",
            self.max_rung,
            CLEARED_BY[self.persistence],
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal an entity."""
        view = state.view(self.kind)
        beyond = self._beyond(view)
        if not beyond.any():
            return []
        beyond &= fresh(state, view, self.metric, fleet)
        if self.held_s:
            with np.errstate(invalid="ignore"):
                beyond &= view.steady_s(self.metric) >= self.held_s
        if not self.after_boot:
            beyond &= ~in_boot_grace(state, view, fleet, now)
        last = view.last(self.metric)
        return [self._signal(ref, float(last[row]), fleet, now) for row, ref in hits(view, beyond)]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Entities whose reading is a number within the limit now."""
        view = state.view(self.kind)
        last = view.last(self.metric)
        return clear_recoveries(
            state,
            self.kind,
            entities,
            fresh(state, view, self.metric, fleet) & ~self._beyond(view),
            self.speaks_for,
            now,
            lambda row: f"{self.metric} reads {last[row]:g}",
        )

    def _beyond(self, view: KindView) -> Bool:
        last = view.last(self.metric)
        beyond: Bool = last <= self.limit if self.below else last >= self.limit
        return beyond

    def _signal(self, ref: EntityRef, value: float, fleet: FleetContext, now: float) -> Signal:
        name = _NAMES.get(ref.kind, ref.kind.value)
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=self.fault_class,
            score=self.score,
            severity=self.severity,
            sentence=f"{self.says} on {name} {ref.key} ({self.metric} = {value:g})",
            numbers={self.metric: value},
            thresholds={self.metric: self.limit},
            plane=self.plane,
            persistence=self.persistence,
            action=self.action,
            acts_alone=self.acts_alone,
            max_rung=self.max_rung,
            boot_id=fleet.boot_ids.get(ref.node_id, ""),
        )
