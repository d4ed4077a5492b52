"""A counter that grows: more than so many in an hour or a day, as long as it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import BOOT_GRACE_S, FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.limited import fixed_limit
from gpuwarden_verdict.detectors.making import DAY_S, HOUR_S
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.tuning.limits import LimitRule
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

MOST_ALONE = 0.25
"""Share of a node's GPUs up to which a sign is the GPU's own."""
_NAMES = {EntityKind.GPU: "GPU", EntityKind.NIC: "NIC"}


@dataclass(frozen=True, slots=True)
class GrowthDetector:
    """Signals where one of several counters grew by the limit within its window.

    A standing count, however high, is the past: it says nothing. A counter that restarts (driver
    load, reset) adds only what it shows since. The window is an exponential one, so that what is
    told has happened within about twice its length. It is over when the counters have stood still
    for `quiet_s`, or have grown so little that the window holds less than half of the limit.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metrics: Counters; the one that grew most is told.
        limit: Growth in the window from which it is told; at least that of one event.
        window_s: HOUR_S or DAY_S.
        fault_class: Where the fault lies.
        score: 0..1.
        severity: Urgency.
        says: What it means, in words.
        unit: What is counted, in words.
        action: Recommended.
        max_rung: Highest rung it may support.
        alone_rung: The same where few other GPUs of the node show it too: what most of them show is
            the room's, the chassis's or the supply's.
        quiet_s: Standing still for so long ends it, seconds.
        trains: Whether the counters grow while links train after a boot: then that growth is left.
        kind: What it speaks about.
        plane: Kind of evidence.
    """

    name: str
    version: int
    metrics: tuple[str, ...]
    limit: float
    window_s: float
    fault_class: FaultClass
    score: float
    severity: Severity
    says: str
    unit: str = "errors"
    action: RecommendedAction = RecommendedAction.INVESTIGATE
    max_rung: Rung = Rung.SUSPECT
    alone_rung: Rung | None = None
    quiet_s: float = HOUR_S
    trains: bool = False
    kind: EntityKind = EntityKind.GPU
    plane: Plane = Plane.COUNTERS

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def limits(self) -> LimitRule:
        """The limit, for all; nothing is learnt."""
        unit = f"{self.unit} {self._in_window()}"
        return LimitRule(unit, self.limit, self.limit, self.limit, persist_s=0.0, budget=None)

    @property
    def about(self) -> About:
        """The detector in words."""
        grace = ", what grew while links trained after a boot left out" if self.trains else ""
        return About(
            self.plane,
            self.metrics,
            self.says,
            f">= {self.limit:g} {self.unit} {self._in_window()}{grace}",
            self.alone_rung or self.max_rung,
            f"no growth for {self.quiet_s / HOUR_S:g} h, or less than half of the limit, "
            "or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal an entity, about the counter that is furthest beyond the limit."""
        view = state.view(self.kind)
        limit = fixed_limit(state, view, fleet, self.name, self.limit)
        told: dict[int, tuple[str, float]] = {}
        for metric in self.metrics:
            grown = self._grown(view, metric)
            for row, _ in hits(view, self._growing(state, view, fleet, metric, limit, now)):
                if row not in told or grown[row] > told[row][1]:
                    told[row] = metric, float(grown[row])
        alone = self._alone(view, sorted(told))
        return [
            self._signal(view.refs[row], metric, grown, float(limit[row]), fleet, now, row in alone)
            for row, (metric, grown) in sorted(told.items())
        ]

    def _alone(self, view: KindView, told: Sequence[int]) -> frozenset[int]:
        """Rows of nodes on which few entities of the kind are told of."""
        if self.alone_rung is None or not told:
            return frozenset()
        all_of = np.bincount(view.node_rows)
        some = np.bincount(view.node_rows[list(told)], minlength=all_of.size)
        few = some <= np.maximum(1, MOST_ALONE * all_of)
        return frozenset(row for row in told if few[view.node_rows[row]])

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Entities whose counters are read, and are all quiet."""
        view = state.view(self.kind)
        read = np.zeros(len(view), dtype=np.bool_)
        loud = np.zeros(len(view), dtype=np.bool_)
        limit = fixed_limit(state, view, fleet, self.name, self.limit)
        for metric in self.metrics:
            read |= fresh(state, view, metric, fleet)
            with np.errstate(invalid="ignore"):
                recent = view.steady_s(metric) < self.quiet_s
                loud |= recent & (self._grown(view, metric) >= limit / 2)
        return clear_recoveries(
            state,
            self.kind,
            entities,
            read & ~loud,
            self.speaks_for,
            now,
            lambda _row: f"{self.unit} have all but stopped",
        )

    def _growing(
        self,
        state: FleetReading,
        view: KindView,
        fleet: FleetContext,
        metric: str,
        limit: F32,
        now: float,
    ) -> Bool:
        with np.errstate(invalid="ignore"):
            growing: Bool = self._grown(view, metric) >= limit
        if not growing.any():
            return growing
        with np.errstate(invalid="ignore"):
            growing &= view.steady_s(metric) < self.quiet_s
            growing &= view.last(metric) > 0  # a restart at 0 is a change and no growth
        growing &= fresh(state, view, metric, fleet)
        if self.trains:
            growing &= ~in_boot_grace(state, view, fleet, now)
            uptime = state.view(EntityKind.NODE).last("node_uptime_seconds")[view.node_rows]
            with np.errstate(invalid="ignore"):
                growing &= ~(uptime - view.steady_s(metric) < BOOT_GRACE_S)
        return growing

    def _grown(self, view: KindView, metric: str) -> F32:
        return view.increment_1h(metric) if self.window_s == HOUR_S else view.increment_24h(metric)

    def _in_window(self) -> str:
        return "within an hour" if self.window_s < DAY_S else "within a day"

    def _signal(
        self,
        ref: EntityRef,
        metric: str,
        grown: float,
        limit: float,
        fleet: FleetContext,
        now: float,
        alone: bool,
    ) -> Signal:
        name = _NAMES.get(ref.kind, ref.kind.value)
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=self.fault_class,
            score=self.score,
            severity=self.severity,
            sentence=f"{self.says} on {name} {ref.key}: about {grown:.0f} {self.unit} "
            f"{self._in_window()} ({metric})",
            numbers={metric: grown},
            thresholds={metric: limit},
            plane=self.plane,
            action=self.action,
            max_rung=self.alone_rung if alone and self.alone_rung else self.max_rung,
            boot_id=fleet.boot_ids.get(ref.node_id, ""),
        )
