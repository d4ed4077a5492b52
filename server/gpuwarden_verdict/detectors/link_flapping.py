"""A NIC port that goes down and comes back again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import BOOT_GRACE_S, FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.link_down import PORT_DOWN, TOGETHER_NODES, fell_together
from gpuwarden_verdict.detectors.making import HOUR_S
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
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_wire.metrics import EntityKind

FLAPS = 2.2
"""Falls, decayed over an hour, that make a flapping port: two never reach it, three within about
forty minutes do. gpud calls a port flapping after three falls (its InfiniBand component, "ib port
flap"); a switch that is rebooted by plan takes one or two."""

QUIET_S = HOUR_S
"""A port that has not fallen for so long flaps no more."""


@dataclass(frozen=True, slots=True)
class LinkFlappingDetector:
    """Signals of ports that fell again and again. Advice only: each time the port came back.

    Looking at the state at intervals misses falls between two looks; the port's own counter does
    not. A counter that restarts (driver load) adds only what it shows since. What fell while links
    trained after a boot does not count.

    A port that was never up is down by design and has nothing to fall from.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: Counter of falls.
        port_state: State of the port.
        up: The value that means up.
    """

    name: str
    version: int
    metric: str
    port_state: str
    up: float

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        return About(
            Plane.COUNTERS,
            (self.metric, self.port_state),
            "a port falls and comes back",
            f">= {FLAPS:g} falls within an hour, those of training after a boot left out",
            Rung.SUSPECT,
            f"no fall for {QUIET_S / HOUR_S:.0f} h, or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a port."""
        view = state.view(EntityKind.NIC)
        falls = view.increment_1h(self.metric)
        with np.errstate(invalid="ignore"):
            flapping: Bool = fresh(state, view, self.metric, fleet) & (falls >= FLAPS)
            flapping &= view.steady_s(self.metric) < QUIET_S
            flapping &= view.highest(self.port_state) >= self.up
        flapping &= ~in_boot_grace(state, view, fleet, now) & ~self._fell_in_training(state, view)
        # In a big fleet some ports flap at any time; those that fell together share the cause.
        shared = fell_together(view, view.steady_s(self.metric), flapping)
        return [
            self._signal(ref, now, float(falls[row]), shared=bool(shared[row]))
            for row, ref in hits(view, flapping)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Ports that have been quiet for QUIET_S."""
        view = state.view(EntityKind.NIC)
        with np.errstate(invalid="ignore"):
            quiet = view.steady_s(self.metric) >= QUIET_S
        return clear_recoveries(
            state,
            EntityKind.NIC,
            entities,
            fresh(state, view, self.metric, fleet) & quiet,
            self.speaks_for,
            now,
            lambda _row: f"the port has not fallen for {QUIET_S / 60:.0f} minutes",
        )

    def _fell_in_training(self, state: FleetReading, view: KindView) -> Bool:
        """Ports whose latest fall lies within the grace after their node's boot, shape (N,)."""
        uptime = state.view(EntityKind.NODE).last("node_uptime_seconds")[view.node_rows]
        with np.errstate(invalid="ignore"):
            trained: Bool = uptime - view.steady_s(self.metric) < BOOT_GRACE_S
        return trained

    def _signal(self, ref: EntityRef, now: float, falls: float, *, shared: bool) -> Signal:
        together = f"; so do ports of at least {TOGETHER_NODES} nodes" if shared else ""
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.FABRIC if shared else FaultClass.NIC,
            score=0.4 if shared else 0.7,
            severity=Severity.WARNING,
            sentence=f"port {ref.key} falls and comes back: {falls:.1f} falls, decayed over an hour"
            f"{together}",
            numbers={self.metric: falls},
            thresholds={self.metric: FLAPS},
            plane=Plane.COUNTERS,
            action=RecommendedAction.CHECK_CABLE,
            max_rung=Rung.SUSPECT,
        )


PORT_FLAPPING = LinkFlappingDetector(
    name="nic_port_flapping",
    version=2,
    metric="nic_link_downed_total",
    port_state=PORT_DOWN.metric,
    up=PORT_DOWN.up,
)
