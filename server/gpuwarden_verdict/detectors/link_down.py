"""A NIC port that was up and is down now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    fresh,
    hits,
    in_boot_grace,
    level_signal,
    twice,
)
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane, Recovery, Signal
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

TOGETHER_S = 60.0
TOGETHER_NODES = 5
"""When ports of this many nodes go down within TOGETHER_S and stay down, what they share is the
cause (a switch, a planned work), not each node: nobody is excluded for it (assumed: more nodes than
fail by chance in a minute, fewer than hang on one leaf switch)."""


@dataclass(frozen=True, slots=True)
class LinkDownDetector:
    """Signals of ports whose state was `up` once and is something else in two readings.

    A port that has been down since it was first seen is so by design (auxiliary port, empty cage):
    no fault. Links that train after a boot are left alone.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        metric: State of the port.
        up: The value that means up.
        score: 0..1.
        max_rung: Highest rung it may support.
    """

    name: str
    version: int
    metric: str
    up: float
    score: float
    max_rung: Rung

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        return About(
            Plane.STRUCTURE,
            (self.metric,),
            "a port that was up is down",
            f"not {self.up:.0f} in two readings, not in the grace after a boot; of "
            f"{TOGETHER_NODES} nodes at once it is the fabric's",
            self.max_rung,
            "the port is up, or a passed check",
        )

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal a port."""
        view = state.view(EntityKind.NIC)
        down = self._down(state, view, fleet, now)
        shared = fell_together(view, view.steady_s(self.metric), down)
        return [
            self._signal(ref, now, float(view.last(self.metric)[row]), shared=bool(shared[row]))
            for row, ref in hits(view, down)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Ports that are up now."""
        view = state.view(EntityKind.NIC)
        clear = fresh(state, view, self.metric, fleet) & (view.last(self.metric) == self.up)
        return clear_recoveries(
            state,
            EntityKind.NIC,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda _row: "the port is up",
        )

    def _down(self, state: FleetReading, view: KindView, fleet: FleetContext, now: float) -> Bool:
        was_up = view.highest(self.metric) >= self.up
        down: Bool = fresh(state, view, self.metric, fleet) & twice(view, self.metric)
        down &= was_up & (view.last(self.metric) != self.up)
        return down & ~in_boot_grace(state, view, fleet, now)

    def _signal(self, ref: EntityRef, now: float, value: float, *, shared: bool) -> Signal:
        together = f"; so are ports of at least {TOGETHER_NODES} nodes" if shared else ""
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=FaultClass.FABRIC if shared else FaultClass.NIC,
            score=min(self.score, 0.4) if shared else self.score,
            severity=Severity.WARNING if shared else Severity.ERROR,
            sentence=f"port {ref.key} was up and is down ({self.metric} = {value:.0f}){together}",
            numbers={self.metric: value},
            thresholds={self.metric: self.up},
            plane=Plane.STRUCTURE,
            action=RecommendedAction.CHECK_CABLE,
            max_rung=Rung.SUSPECT if shared else self.max_rung,
        )


def fell_together(view: KindView, down_s: F32, down: Bool) -> Bool:
    """Ports down whose fall was within TOGETHER_S of falls on TOGETHER_NODES nodes, shape (N,).

    For how long a port has been down (`down_s`, shape (N,)) is what its agent measures between its
    own readings. When it fell is no measure: agents' clocks are minutes apart where time is not
    served, and when readings arrive says nothing after a spool was emptied. Every node here was
    heard of a moment ago, so that equal durations are falls at the same time.
    """
    shared = np.zeros(len(view), dtype=np.bool_)
    rows = np.flatnonzero(down)
    for row in rows:
        near = rows[np.abs(down_s[rows] - down_s[row]) <= TOGETHER_S]
        shared[row] = np.unique(view.node_rows[near]).size >= TOGETHER_NODES
    return shared


PORT_DOWN = LinkDownDetector(
    name="nic_port_down",
    version=2,
    metric="nic_port_state",
    up=4.0,  # /sys/class/infiniband/D/ports/P/state: 4 is ACTIVE
    score=0.85,
    max_rung=Rung.EXCLUDE,
)
CARRIER_DOWN = LinkDownDetector(
    name="nic_carrier_down",
    version=2,
    metric="nic_carrier",
    up=1.0,
    # RDMA ports have a port state too; a net interface alone may be management's or spare
    score=0.5,
    max_rung=Rung.SUSPECT,
)
