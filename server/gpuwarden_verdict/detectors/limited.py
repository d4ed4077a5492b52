"""Detectors whose limit can be seen and set, and the limit of each entity where it is fixed."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import About
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.tuning.limits import LimitRule, ScopedRule
from gpuwarden_verdict.windows import FleetReading, KindView
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind


@runtime_checkable
class Limited(Protocol):
    """A detector that holds a number against a limit."""

    @property
    def name(self) -> str:
        """Stable snake_case name."""
        ...

    @property
    def kind(self) -> EntityKind:
        """Kind of entity that it is about."""
        ...

    @property
    def limits(self) -> LimitRule:
        """The limit."""
        ...

    @property
    def about(self) -> About:
        """The detector in words, with the metrics that it reads."""
        ...


def scoped_rule(
    detector: Limited, state: FleetReading, fleet: FleetContext, now: float
) -> ScopedRule | None:
    """A detector's limit, and for what it holds; None where nothing that it reads is there."""
    scene = Scene(detector.kind, state, fleet, now)
    if not len(scene.view) or scene.known_metrics().isdisjoint(detector.about.reads):
        return None
    return ScopedRule(detector.name, detector.limits, scene.scopes())


def fixed_limit(
    state: FleetReading, view: KindView, fleet: FleetContext, detector: str, limit: float
) -> F32:
    """Limit of each entity, float32, shape (N,): the policy's for its node's pool, else `limit`."""
    if detector not in fleet.tuning.rules:
        return np.full(len(view), limit, np.float32)
    pools = fleet.memory.codes(state.view(EntityKind.NODE), "pools", fleet.pools)
    words = (*fleet.memory.words("pools"), "")  # the code of no pool is the last one's
    said = [fleet.tuning.rule(detector, pool).limit for pool in words]
    of_pool = np.array([limit if one is None else one for one in said], np.float32)
    limits: F32 = of_pool[pools][view.node_rows]
    return limits
