"""Nodes that vanish together: one cause, and never their hardware's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_verdict.incidents.behind import (
    Blamed,
    nodes_words,
    place_clear,
    place_signal,
    standing_item,
)
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.place_index import PlaceIndex
from gpuwarden_verdict.incidents.place_rules import (
    LEAST_WHOLE,
    OVER_SHARE,
    SILENCE,
    SILENCE_RULES,
    SILENCE_WITHIN_S,
    SilenceRule,
)
from gpuwarden_verdict.places import PlaceKind, place_ref, place_words
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class _Vanished:
    """Nodes behind a place that fell silent together; `peak` is the most that did."""

    rule: SilenceRule
    name: str
    nodes: frozenset[str]
    peak: float
    began: float


def blame_silence(
    silent_since: Mapping[str, float],
    unheard: frozenset[str],
    incidents: Sequence[Incident],
    index: PlaceIndex,
    now: float,
) -> Blamed:
    """What the silence of many says of the places that they stand behind.

    The narrowest place that holds all of them is blamed, one for all: where it takes several, the
    fleet is.

    Args:
        silent_since: When each silent node was last heard of, epoch seconds; those that were taken
            out of the fleet, or are under maintenance, left out.
        unheard: Nodes not heard of since this process started: they are not back before they say
            so.
        incidents: All that are open.
        index: Who stands behind what.
        now: Epoch seconds.
    """
    blamed = Blamed()
    free = dict(silent_since)
    for parent in incidents:
        if parent.entity.kind is EntityKind.PLACE:
            _review(parent, free, unheard, index, now, blamed)
    together = _together(free)
    found = _narrowest(together, index)
    if found is not None:
        rule, name, nodes = found
        began = min(silent_since[node] for node in nodes)
        vanished = _Vanished(rule, name, nodes, float(len(nodes)), began)
        blamed.signals.append(_signal(vanished, index, now))
    return blamed


def _review(
    parent: Incident,
    free: dict[str, float],
    unheard: frozenset[str],
    index: PlaceIndex,
    now: float,
    blamed: Blamed,
) -> None:
    """A place whose nodes vanished before: those that are still away belong to it."""
    item = standing_item(parent, SILENCE)
    kind, _, name = parent.entity.key.partition(":")
    rule = next((rule for rule in SILENCE_RULES if rule.kind == kind), None)
    if item is None or rule is None:
        return
    began = item.numbers.get("silent_since", item.first_at)
    since = began - SILENCE_WITHIN_S
    nodes = frozenset(
        node for node in index.behind(rule.kind, name) if free.get(node, 0.0) >= since
    )
    peak = max(item.numbers.get("peak", 0.0), float(len(nodes)))
    wanted = max(LEAST_WHOLE, OVER_SHARE * peak)
    if len(nodes) < wanted <= len(nodes | (index.behind(rule.kind, name) & unheard)):
        pass  # a restart of ours brings nobody back
    elif len(nodes) < wanted:
        words = f"{peak - len(nodes):.0f} of {peak:.0f} nodes are back"
        blamed.recoveries.append(place_clear(parent.entity, SILENCE, words, now))
    else:
        blamed.signals.append(_signal(_Vanished(rule, name, nodes, peak, began), index, now))
    for node in nodes:
        del free[node]


def _together(silent_since: Mapping[str, float]) -> frozenset[str]:
    """The most nodes that fell silent within SILENCE_WITHIN_S."""
    ordered = sorted((at, node) for node, at in silent_since.items())
    best: tuple[int, int] = (0, 0)
    first = 0
    for last, (at, _) in enumerate(ordered):
        while ordered[first][0] < at - SILENCE_WITHIN_S:
            first += 1
        if last + 1 - first > best[1] - best[0]:
            best = (first, last + 1)
    return frozenset(node for _, node in ordered[slice(*best)])


def _narrowest(
    nodes: frozenset[str], index: PlaceIndex
) -> tuple[SilenceRule, str, frozenset[str]] | None:
    """The narrowest place that holds them all; else the fleet, or the place that holds the most."""
    enough = [
        (rule, name, held)
        for rule in SILENCE_RULES
        for name in index.places_of(rule.kind, nodes)
        if (held := nodes & (behind := index.behind(rule.kind, name)))
        and _enough(rule, len(held), behind)
    ]
    whole = [one for one in enough if one[2] == nodes]
    if whole:
        return whole[0]
    return max(enough, key=lambda one: len(one[2]), default=None)


def _enough(rule: SilenceRule, nodes: int, behind: frozenset[str]) -> bool:
    if rule.kind is not PlaceKind.FLEET and LEAST_WHOLE <= nodes == len(behind):
        return True
    return nodes >= rule.least_nodes and nodes >= rule.least_share * len(behind)


def _signal(vanished: _Vanished, index: PlaceIndex, now: float) -> Signal:
    rule, nodes = vanished.rule, vanished.nodes
    place = place_ref(rule.kind, vanished.name)
    total = len(index.behind(rule.kind, vanished.name))
    fleet = rule.kind is PlaceKind.FLEET
    where = "of the fleet" if fleet else f"behind {place_words(place.key)}"
    sentence = (
        f"{len(nodes)} of {total} nodes {where} vanished together: {nodes_words(nodes)}; power, "
        "network or this server's own connection, not their hardware"
    )
    numbers = {
        "nodes": float(len(nodes)),
        "behind": float(total),
        "peak": vanished.peak,
        "silent_since": vanished.began,
    }
    return place_signal(place, SILENCE, rule.fault_class, sentence, numbers, now)
