"""What detectors of ports, disks, mounts and hosts measure: rates, growth, shares, and falls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.context import BOOT_GRACE_S
from gpuwarden_verdict.detectors.making import HOUR_S
from gpuwarden_verdict.detectors.peer_deviation import rails
from gpuwarden_verdict.detectors.reading import Bool
from gpuwarden_verdict.detectors.scene import FEWEST_IN_FLEET, FEWEST_IN_JOB, Scene, combined
from gpuwarden_verdict.detectors.statistic import Measured
from gpuwarden_verdict.grouping import Grouping
from gpuwarden_verdict.windows.planes import F32
from gpuwarden_wire.metrics import EntityKind

Measure = Callable[[Scene], Measured]


def growth_an_hour(*metrics: str) -> Measure:
    """Growth of some counters in an hour, together.

    While links trained after a boot counters grow: until that is forgotten, the rate of the last
    minute counts in place of what the hour holds.
    """

    def measure(scene: Scene) -> Measured:
        return Measured(_together(scene, metrics, _grown_1h), crowd=_crowd(scene))

    return measure


def growth_a_day(*metrics: str) -> Measure:
    """Growth of some counters in a day, together."""

    def measure(scene: Scene) -> Measured:
        return Measured(_together(scene, metrics, Scene.grown_24h))

    return measure


def most_growth_an_hour(scene: Scene, metrics: tuple[str, ...]) -> F32:
    """What `growth_an_hour` never exceeds, shape (N,): whether it may be judged is not asked."""
    young, most = scene.once("young", lambda: _young(scene)), _most(scene, metrics, day=False)
    return np.where(young, np.float32(np.inf), most) if young.any() else most


def most_growth_a_day(scene: Scene, metrics: tuple[str, ...]) -> F32:
    """As `most_growth_an_hour`, of a day."""
    return _most(scene, metrics, day=True)


def _most(scene: Scene, metrics: tuple[str, ...], *, day: bool) -> F32:
    view = scene.view
    grown_of = view.increment_24h if day else view.increment_1h
    grown = [grown_of(name) for name in metrics if name in scene.known_metrics()]
    if len(grown) == 1:
        return grown[0]
    total = np.zeros(len(view), np.float32)
    for one in grown:
        total += np.fmax(one, np.float32(0.0))
    return total


def largest_rate(*metrics: str) -> Measure:
    """The largest of some counters' rates a second; of counted seconds, a share of the time."""

    def measure(scene: Scene) -> Measured:
        known = [name for name in metrics if name in scene.known_metrics()]
        value = np.full(len(scene.view), np.nan, np.float32)
        for name in known:
            value = np.fmax(value, scene.mean(name))
        return Measured(value, crowd=_crowd(scene))

    return measure


def reading(metric: str) -> Measure:
    """A reading as it is."""

    def measure(scene: Scene) -> Measured:
        return Measured(scene.latest(metric))

    return measure


def times_rail(metric: str) -> Measure:
    """A counter's rate, in multiples of what it is at the same port of other nodes."""

    def measure(scene: Scene) -> Measured:
        own, rail = scene.mean(metric), rail_in_pool(scene)
        usual = rail.per_entity(rail.medians(own))
        with np.errstate(invalid="ignore", divide="ignore"):
            value = (own / np.maximum(usual, 1.0)).astype(np.float32)
        return Measured(value, {"own": own, "usual": usual}, _crowd(scene))

    return measure


def below_rail(metric: str, working: Callable[[Scene], Bool]) -> Measure:
    """Share by which a reading is below the same port of other nodes, else below its own highest.

    What all nodes have by design is the median of them all and no shortfall.

    Args:
        metric: A reading that stands still unless something is wrong.
        working: Entities about which it says anything.
    """

    def measure(scene: Scene) -> Measured:
        own, rail = scene.latest(metric), rail_in_pool(scene)
        usual = rail.per_entity(rail.medians(own))
        usual = np.where(np.isnan(usual), scene.view.highest(metric), usual)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(working(scene), 1.0 - own / usual, np.nan).astype(np.float32)
        return Measured(value, {"own": own, "usual": usual}, _crowd(scene))

    return measure


@dataclass(frozen=True, slots=True)
class Operations:
    """What is under way: below `least` a second the times of operations say little.

    Attributes:
        total: Counter of those that were done.
        waiting: Gauge of those that wait: none and few done is rest, some and few done is not.
        least: A second.
    """

    total: str
    waiting: str
    least: float

    def at_rest(self, scene: Scene) -> Bool:
        """Where hardly any is done and none waits, shape (N,)."""
        with np.errstate(invalid="ignore"):
            resting: Bool = (scene.mean(self.total) < self.least) & (scene.mean(self.waiting) < 1.0)
        return resting


def share_of_time(part: str, whole: str, operations: Operations) -> Measure:
    """Share that one counter of seconds has in another, while enough operations are under way."""

    def measure(scene: Scene) -> Measured:
        rate = scene.mean(operations.total)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = scene.mean(part) / scene.mean(whole)
            value = np.where(rate >= operations.least, value, np.nan).astype(np.float32)
        return Measured(value, {"operations": rate}, at_rest=operations.at_rest(scene))

    return measure


def seconds_each(seconds: str, operations: Operations) -> Measure:
    """Mean time of an operation, seconds, while enough of them are under way."""

    def measure(scene: Scene) -> Measured:
        rate = scene.mean(operations.total)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = np.where(rate >= operations.least, scene.mean(seconds) / rate, np.nan)
        resting = operations.at_rest(scene)
        return Measured(value.astype(np.float32), {"operations": rate}, at_rest=resting)

    return measure


def reading_while(metric: str, other: str, at_least: float) -> Measure:
    """A mean of the last minute, where another one is high too."""

    def measure(scene: Scene) -> Measured:
        with np.errstate(invalid="ignore"):
            both = scene.mean(other) >= at_least
        return Measured(scene.mean(metric), {"other": scene.mean(other)}, condition=both)

    return measure


def change_to_usual(scene: Scene, metric: str) -> tuple[F32, F32]:
    """A rate over its own mean of the last hour, and the median of that among the node's peers.

    Peers are the nodes of the same job, else of the pool; NaN where there are too few.
    """
    return scene.once(("change to usual", metric), lambda: _change_to_usual(scene, metric))


def _change_to_usual(scene: Scene, metric: str) -> tuple[F32, F32]:
    view = scene.view
    with np.errstate(invalid="ignore", divide="ignore"):
        own = scene.mean(metric) / view.ewma_slow(metric)
        own = np.where(view.coverage_s(metric) >= _LEAST_PAST_S, own, np.float32(np.nan))
    of_job = scene.grouping("nodes_of_job", FEWEST_IN_JOB, scene.jobs)
    of_pool = scene.grouping("nodes_of_pool", FEWEST_IN_FLEET, lambda: scene.pools() + 1)
    by_job = of_job.per_entity(of_job.medians(own))
    by_pool = of_pool.per_entity(of_pool.medians(own))
    return own, np.where(np.isnan(by_job), by_pool, by_job)


def rail_in_pool(scene: Scene) -> Grouping:
    """Ports of one name on the nodes of one pool."""
    return scene.grouping(
        "rail_in_pool", FEWEST_IN_FLEET, lambda: combined(scene.pools() + 1, rails(scene))
    )


_LEAST_PAST_S = 600.0
"""What is usual is not known sooner."""


def _together(scene: Scene, metrics: tuple[str, ...], grown_of: Callable[[Scene, str], F32]) -> F32:
    """Sum over the metrics that are read; NaN where none is."""
    known = [name for name in metrics if name in scene.known_metrics()]
    if not known:
        return np.full(len(scene.view), np.nan, np.float32)
    total = grown_of(scene, known[0])
    for name in known[1:]:
        grown = grown_of(scene, name)
        total = np.where(np.isnan(total), grown, total + np.nan_to_num(grown))
    return total


def _grown_1h(scene: Scene, metric: str) -> F32:
    young = scene.once("young", lambda: _young(scene))
    if not young.any():
        return scene.grown_1h(metric)
    return np.where(young, scene.mean(metric) * HOUR_S, scene.grown_1h(metric)).astype(np.float32)


def _young(scene: Scene) -> Bool:
    uptime = scene.state.view(EntityKind.NODE).last("node_uptime_seconds")
    with np.errstate(invalid="ignore"):
        return (uptime < BOOT_GRACE_S + 2 * HOUR_S)[scene.view.node_rows]


def _crowd(scene: Scene) -> Callable[[Bool], F32] | None:
    if scene.kind is not EntityKind.NIC:
        return None
    everyone = np.ones(len(scene.view), np.bool_)
    return lambda beyond: rail_in_pool(scene).share(beyond, everyone)
