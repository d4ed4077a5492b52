"""A detector whose rule is a number a entity, held against a limit for some time.

What differs between such detectors is data: what is measured, the limit (fixed, or learnt for an
alarm budget), how long it must be passed, and what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.about import CLEARED_BY, About
from gpuwarden_verdict.detectors.reading import (
    Bool,
    clear_recoveries,
    hits,
    in_boot_grace,
    level_signal,
)
from gpuwarden_verdict.detectors.scene import Scene
from gpuwarden_verdict.entities import EntityRef, FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Persistence, Plane, Recovery, Signal
from gpuwarden_verdict.tuning.limits import LimitRule, learn, limits_now
from gpuwarden_verdict.windows import FleetReading
from gpuwarden_verdict.windows.planes import F32, AnyArray
from gpuwarden_wire.metrics import EntityKind

SUSTAINED = 0.8
"""Share of the sweeps of the persistence in which the limit must be passed: one good reading in
five is forgiven, since it weighs four times a bad one."""
FEWEST_SWEEPS = 3
"""However long a sweep is away from the next, so many must see it."""
CLEAR_SHARE = 0.6
"""Below this share of the limit it is clear; between the two nothing is said."""
CROWD = 0.25
"""When a larger share of a group is beyond, what they share is the cause: nobody is blamed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What is measured of N entities.

    Attributes:
        value: Held against the limit, float32, shape (N,); NaN where nothing can be said.
        shown: Further numbers for the words, by name, shape (N,) each.
        crowd: Given who is beyond, shape (N,), the share beyond among those who share its causes:
            where it is large, nobody is blamed. None: nobody shares any.
        condition: What must hold besides, shape (N,); None: nothing.
        at_rest: Where nothing is under way that could be measured, so that what was said before is
            over, shape (N,); None: nowhere.
    """

    value: F32
    shown: Mapping[str, AnyArray] = field(default_factory=dict)
    crowd: Callable[[Bool], F32] | None = None
    condition: Bool | None = None
    at_rest: Bool | None = None


@dataclass(frozen=True, slots=True)
class StatisticDetector:
    """Signals of entities whose statistic was beyond its limit for long enough.

    Attributes:
        name: Detector.
        version: Raised on any change of its results.
        kind: Kind of entity that it is about.
        what: Short, for a table: what it finds.
        needs: Metrics without any of which there is nothing to measure.
        measure: The statistic.
        limits: Its limit.
        fault_class: Where the fault lies.
        plane: Kind of evidence.
        score: 0..1.
        severity: Urgency.
        says: The evidence in words, a format with {entity}, {value}, {limit} and what is shown.
        clear_says: The clear reading in words, the same.
        action: Recommended.
        max_rung: Highest rung it may support.
        persistence: How the condition ends.
        quiet_after_boot: Whether nothing is said in a node's first minutes.
    """

    name: str
    version: int
    kind: EntityKind
    what: str
    needs: tuple[str, ...]
    measure: Callable[[Scene], Measured]
    limits: LimitRule
    fault_class: FaultClass
    plane: Plane
    score: float
    severity: Severity
    says: str
    clear_says: str
    action: RecommendedAction = RecommendedAction.INVESTIGATE
    max_rung: Rung = Rung.SUSPECT
    persistence: Persistence = Persistence.LEVEL
    quiet_after_boot: bool = True

    @property
    def speaks_for(self) -> frozenset[str]:
        """Its own evidence."""
        return frozenset({self.name})

    @property
    def about(self) -> About:
        """The detector in words."""
        clears = f"below {CLEAR_SHARE:.0%} of the limit again, or a passed check"
        if self.persistence is not Persistence.LEVEL:
            clears = CLEARED_BY[self.persistence]
        return About(self.plane, self.needs, self.what, self.limits.in_words, self.max_rung, clears)

    def detect(self, state: FleetReading, fleet: FleetContext, now: float) -> list[Signal]:
        """One signal an entity; limits go on being learnt."""
        scene = Scene(self.kind, state, fleet, now)
        if self._is_blind(scene):
            return []
        measured, limit = self._measured(scene), self._limit(scene)
        with np.errstate(invalid="ignore"):
            beyond: Bool = measured.value > limit
        if measured.condition is not None:
            beyond &= measured.condition
        if self.quiet_after_boot and beyond.any():
            beyond &= ~in_boot_grace(state, scene.view, fleet, now)
        lasting = self._held(scene, beyond)
        lasting &= beyond
        if measured.crowd is not None and lasting.any():
            lasting &= ~(measured.crowd(beyond) > CROWD)
        self._learn(scene, np.where(lasting, np.float32(np.nan), measured.value))
        return [
            self._signal(ref, row, measured, limit, now) for row, ref in hits(scene.view, lasting)
        ]

    def clears(
        self, state: FleetReading, fleet: FleetContext, entities: Sequence[EntityRef], now: float
    ) -> list[Recovery]:
        """Entities whose statistic is well below the limit again."""
        scene = Scene(self.kind, state, fleet, now)
        if self._is_blind(scene):
            return []
        measured, limit = self._measured(scene), self._limit(scene)
        with np.errstate(invalid="ignore"):
            clear: Bool = measured.value < CLEAR_SHARE * limit
        if measured.at_rest is not None:
            clear |= measured.at_rest
        return clear_recoveries(
            state,
            self.kind,
            entities,
            clear,
            self.speaks_for,
            now,
            lambda row: self._clear_words(scene.view.refs[row], row, measured, limit),
        )

    def _is_blind(self, scene: Scene) -> bool:
        return not len(scene.view) or scene.known_metrics().isdisjoint(self.needs)

    def _measured(self, scene: Scene) -> Measured:
        return scene.once(("measured", self.name), lambda: self.measure(scene))

    def _limit(self, scene: Scene) -> F32:
        fleet = scene.fleet
        return scene.once(
            ("limit", self.name),
            lambda: limits_now(fleet.memory, fleet.tuning, self.name, self.limits, scene.scopes()),
        )

    def _learn(self, scene: Scene, value: F32) -> None:
        """Let the limit follow what is usual; who is told of already teaches nothing."""
        memory, tuning = scene.fleet.memory, scene.fleet.tuning
        learn(memory, tuning, self.name, self.limits, scene.scopes(), value, scene.now)

    def _held(self, scene: Scene, beyond: Bool) -> Bool:
        """Whether the limit was passed for long enough, shape (N,)."""
        memory, lasts = scene.fleet.memory, self.limits.persist_s
        if lasts <= 0.0:
            return beyond.copy()
        held = memory.plane(scene.view, self.name, "held")
        step = min(memory.elapsed_s(self.name, scene.now), lasts / FEWEST_SWEEPS)
        held += np.where(beyond, step, -step * SUSTAINED / (1.0 - SUSTAINED))
        np.clip(held, 0.0, lasts, out=held)
        reached: Bool = held >= lasts * (1.0 - 1e-6)
        return reached

    def _signal(
        self, ref: EntityRef, row: int, measured: Measured, limit: F32, now: float
    ) -> Signal:
        shown = {name: float(column[row]) for name, column in measured.shown.items()}
        return level_signal(
            ref,
            now,
            detector=self.name,
            version=self.version,
            fault_class=self.fault_class,
            score=self.score,
            severity=self.severity,
            sentence=self._words(self.says, ref, row, measured, limit),
            numbers={self.name: float(measured.value[row]), **shown},
            thresholds={self.name: float(limit[row])},
            plane=self.plane,
            persistence=self.persistence,
            action=self.action,
            max_rung=self.max_rung,
        )

    def _clear_words(self, ref: EntityRef, row: int, measured: Measured, limit: F32) -> str:
        if np.isnan(measured.value[row]):
            return "at rest: nothing is under way that could be measured"
        return self._words(self.clear_says, ref, row, measured, limit)

    def _words(self, form: str, ref: EntityRef, row: int, measured: Measured, limit: F32) -> str:
        shown = {name: float(column[row]) for name, column in measured.shown.items()}
        value = float(measured.value[row])
        return form.format(entity=ref.key, value=value, limit=float(limit[row]), **shown)
