"""How features are made, one line a column: readings, growth, events, ages, and what stands still.

A reading that may not be judged is NaN: of a node that is not heard of, of a part that its node
names no more, or older than the entity's other readings. Counts of events are NaN there too, save
where events are known: that nothing was heard of a silent node is no good sign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gpuwarden_verdict.detectors.measures import (
    Measure,
    change_to_usual,
    growth_a_day,
    growth_an_hour,
    most_growth_a_day,
    most_growth_an_hour,
)
from gpuwarden_verdict.detectors.peer_deviation import PEER_DETECTORS
from gpuwarden_verdict.detectors.reading import in_boot_grace
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.event_groups import EventGroup
from gpuwarden_verdict.features.contract import Feature
from gpuwarden_verdict.features.scene import UNREAD, Column, Look, Make
from gpuwarden_verdict.signals import Plane
from gpuwarden_verdict.windows.planes import F32, I64
from gpuwarden_wire.metrics import EntityKind

DAY_S = 86_400.0
DAY_H = 24.0
PLURALS = {
    EntityKind.GPU: "GPUs",
    EntityKind.DISK: "disks",
    EntityKind.MOUNT: "mounts",
}
_PEERS = {detector.name: detector for detector in PEER_DETECTORS}
_NAN = np.float32(np.nan)


def column(
    name: str, plane: Plane, fault: FaultClass, make: Make, *, cheap: bool = False
) -> Column:
    """A feature whose larger value never lowers the risk."""
    return Column(Feature(name, plane, 1, fault, cheap), make)


def latest(metric: str) -> Make:
    """The latest reading."""
    return Make(
        lambda look: look.latest(metric),
        f"`{metric}` as last read",
        alone=True,
        bound=lambda look: look.view.last(metric),
    )


def mean(metric: str) -> Make:
    """The mean of the last minute; of a counter, its rate a second."""
    a_second = " a second" if metric.endswith("_total") else ""
    return Make(
        lambda look: look.mean(metric), f"mean of `{metric}`{a_second} over a minute", alone=True
    )


def total(*metrics: str) -> Make:
    """Sum of the latest readings; NaN where none is."""
    return Make(
        lambda look: together([look.latest(metric) for metric in metrics]),
        f"{listed(metrics)} as last read",
        alone=True,
    )


def grown_1h(*metrics: str) -> Make:
    """Growth of some counters in an hour, together."""
    return _grown(
        growth_an_hour(*metrics),
        f"growth of {listed(metrics)} in an hour",
        partial(most_growth_an_hour, metrics=metrics),
    )


def grown_24h(*metrics: str) -> Make:
    """Growth of some counters in a day, together."""
    return _grown(
        growth_a_day(*metrics),
        f"growth of {listed(metrics)} in a day",
        partial(most_growth_a_day, metrics=metrics),
    )


def risen(*metrics: str) -> Make:
    """Growth in the last hour above the day's mean of an hour: below 0 where it slows down."""
    hour, day = grown_1h(*metrics), grown_24h(*metrics)
    return Make(
        lambda look: hour(look) - day(look) / np.float32(DAY_H),
        f"growth of {listed(metrics)} in an hour, above an hour's share of the day's",
        alone=True,
    )


def _grown(measure: Measure, said: str, bound: Callable[[Look], F32]) -> Make:
    return Make(lambda look: measure(look).value, said, alone=True, bound=bound)


def measured(measure: Measure, said: str, missing: str = UNREAD) -> Make:
    """What a detector measures."""
    return Make(lambda look: measure(look).value, said, missing)


def deviation(detector: str, said: str) -> Make:
    """Distance from the peers as a detector of PEER_DETECTORS measured it in this sweep."""
    judge = _PEERS[detector]

    def make(look: Look) -> F32:
        if not look.known_metrics().issuperset(judge.needs):
            return np.full(len(look.view), _NAN)
        return look.once(("measured", judge.name), lambda: judge.measure(look)).value

    return Make(make, f"{said} (detector `{detector}`)", "unread, not at work, or too few peers")


def settled(make: Make) -> Make:
    """What is not judged in the minutes after a boot, while links train and devices appear."""

    def later(look: Look) -> F32:
        booting = look.once(
            "booting", lambda: in_boot_grace(look.state, look.view, look.fleet, look.now)
        )
        value = np.asarray(make(look), np.float32)
        return np.where(booting, _NAN, value) if booting.any() else value

    return Make(later, make.said, f"{make.missing}; the minutes after a boot", make.alone)


def events_1h(*groups: EventGroup) -> Make:
    """Events of some groups in an hour, together."""
    return Make(
        lambda look: _events(look, groups, day=False),
        f"events of {listed(groups)}, decayed over an hour",
        "no event is known and the node is not heard of",
        alone=True,
        bound=lambda look: _counted(look, groups, day=False),
    )


def events_24h(*groups: EventGroup) -> Make:
    """Events of some groups in a day, together."""
    return Make(
        lambda look: _events(look, groups, day=True),
        f"events of {listed(groups)}, decayed over a day",
        "no event is known and the node is not heard of",
        alone=True,
        bound=lambda look: _counted(look, groups, day=True),
    )


def _events(look: Look, groups: Sequence[EventGroup], *, day: bool) -> F32:
    count = _counted(look, groups, day=day)
    return np.where(look.heard() | (count > 0), count, _NAN)


def _counted(look: Look, groups: Sequence[EventGroup], *, day: bool) -> F32:
    count = np.zeros(len(look.view), np.float32)
    for group in look.view.groups.intersection(groups):
        count = count + look.once(
            ("events", group, day, look.now),
            lambda group=group: (  # type: ignore[misc]  # mypy takes the default for an argument
                look.view.events_24h(group, look.now)
                if day
                else look.view.events_1h(group, look.now)
            ),
        )
    return count


def rise_over_peers(metric: str, floor: float) -> Make:
    """Mean of the last minute in means of the last hour, less the same of the node's peers.

    A checkpoint makes a whole job's nodes page out; 0 is what is usual. NaN for ten minutes after
    the first reading, when the two means are the same.

    Args:
        metric: What is read of nodes.
        floor: The hour's mean is not taken to be smaller: a multiple of nothing says nothing.
    """

    def make(look: Look) -> F32:
        own, peers = change_to_usual(look, metric)
        slow = look.view.ewma_slow(metric)
        with np.errstate(invalid="ignore", divide="ignore"):
            tamed = slow / np.maximum(slow, np.float32(floor))
            usual = np.where(np.isnan(peers), np.float32(1.0), np.fmax(peers, np.float32(1.0)))
            rise = (own - usual) * tamed
        return rise.astype(np.float32)

    return Make(
        make,
        f"mean of `{metric}` over a minute in means of an hour, less the same of the node's peers",
        f"{UNREAD}; ten minutes after the first reading",
    )


def listed(names: Sequence[str]) -> str:
    """Names as code, joined by commas."""
    return ", ".join(f"`{name}`" for name in names)


def together(parts: Sequence[F32]) -> F32:
    """Sum of what is known; NaN where nothing is."""
    whole = np.full(parts[0].shape, _NAN)
    for part in parts:
        whole = np.where(np.isnan(whole), part, whole + np.nan_to_num(part))
    return whole


def worst_of(kind: EntityKind, make: Make) -> Make:
    """Of a node: the largest of its devices of a kind; NaN where none has any."""

    def of_node(look: Look) -> F32:
        devices = look.at(kind)
        made = np.asarray(make(devices), np.float32)
        worst = np.full(len(look.view), -np.inf, np.float32)
        known = ~np.isnan(made)
        np.maximum.at(worst, devices.view.node_rows[known], made[known])
        worst[np.isneginf(worst)] = np.nan
        return worst

    return Make(of_node, f"the largest of the node's {PLURALS[kind]}: {make.said}", make.missing)


def sum_of(kind: EntityKind, make: Make) -> Make:
    """Of a node: the sum over its devices of a kind; NaN where none has any."""

    def of_node(look: Look) -> F32:
        devices = look.at(kind)
        made, rows = np.asarray(make(devices), np.float32), devices.view.node_rows
        known = ~np.isnan(made)
        count = np.bincount(rows[known], minlength=len(look.view))
        whole = np.bincount(rows[known], made[known], minlength=len(look.view))
        return np.where(count > 0, whole, np.nan).astype(np.float32)

    return Make(of_node, f"sum over the node's {PLURALS[kind]}: {make.said}", make.missing)


def of_its_node(make: Make) -> Make:
    """Of a device: what its node has."""

    def of_device(look: Look) -> F32:
        made = np.asarray(make(look.at(EntityKind.NODE)), np.float32)
        return made[look.view.node_rows] if made.size else np.full(len(look.view), _NAN)

    return Make(of_device, f"of its node: {make.said}", make.missing, alone=True)


def by_node(look: Look, told: dict[str, float], otherwise: float = np.nan) -> F32:
    """Numbers told by node id, for the kind of nodes, shape (nodes,)."""
    made = np.full(len(look.view), otherwise, np.float32)
    rows: I64 = look.state.rows_of(EntityKind.NODE, list(told))
    there = rows >= 0
    made[rows[there]] = np.array(list(told.values()), np.float32)[there]
    return made
