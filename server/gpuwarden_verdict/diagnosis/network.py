"""One NIC, a rail, a leaf switch or the fabric: who shows trouble, and what stands behind them all.

What many NICs show is blamed on the smallest thing that explains most of it and little besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.domain import (
    Acquittal,
    Culprit,
    CulpritKind,
    Evidence,
    Layer,
    Scale,
)
from gpuwarden_verdict.diagnosis.robust import Run, middle, one_quantile, over, quantile, together
from gpuwarden_verdict.diagnosis.scene import Finding, Scene
from gpuwarden_verdict.diagnosis.signs import Seen, Sign, find_signs
from gpuwarden_verdict.diagnosis.window import Floats, Ints, Window
from gpuwarden_verdict.places import PlaceKind, place_words
from gpuwarden_wire.metrics import EntityKind

_LOSSES = (
    "nic_symbol_errors_total",
    "nic_receive_errors_total",
    "nic_link_error_recovery_total",
    "nic_transmit_discards_total",
    "nic_out_of_sequence_total",
    "nic_packet_sequence_errors_total",
    "nic_local_ack_timeouts_total",
    "nic_adaptive_retransmits_total",
)
_ACTIVE = 4.0
_TALKS = 1e6
"""Bytes a second from which waiting a byte means something."""
_MOST = 3
FABRIC = "fleet:"
RAIL = "rail"


@dataclass(frozen=True, slots=True)
class _Group:
    """What NICs may stand behind; `order` prefers the smaller where two explain the same."""

    kind: CulpritKind
    entity: str
    node: str
    words: str
    members: frozenset[int]
    order: int


def find_network(scene: Scene) -> Finding:
    """Network candidates that concern the job."""
    window = scene.window
    rows = _talking(window)
    strip = window.strip(EntityKind.NIC)
    names = tuple(f"NIC {strip.keys[row]}" for row in rows.tolist())
    read = scene.phases.running & ~scene.phases.resting
    found = dict(find_signs(scene, _signs(window, rows), names, read))
    groups = _groups(window, rows)
    own = set(np.flatnonzero(np.isin(strip.node[rows], scene.job.nodes)).tolist())
    culprits: list[Culprit] = []
    readable = len(rows)
    while found and len(culprits) < _MOST:
        group = max(groups, key=lambda one: _fit(one, found))
        members = group.members & found.keys()
        if group.members & own:
            culprits.append(_culprit(scene, group, {m: found[m] for m in members}, found, readable))
        for member in group.members:
            found.pop(member, None)
    return Finding(tuple(culprits), _acquittal(scene, rows, own))


def _talking(window: Window) -> Ints:
    """NICs of nodes that have a job; all of them where no job is known."""
    strip = window.strip(EntityKind.NIC)
    if not window.jobs:
        return np.arange(len(strip.keys))
    used = np.unique(np.concatenate([job.nodes for job in window.jobs]))
    return np.flatnonzero(np.isin(strip.node, used))


def _signs(window: Window, rows: Ints) -> list[Sign]:
    def read(metric: str) -> Floats:
        return window.metric(EntityKind.NIC, metric)[rows]

    rate, state = read("nic_rate_bytes_per_second"), read("nic_port_state")
    usual = np.broadcast_to(middle(rate, 0), rate.shape)
    down = np.where(np.isfinite(state), (state != _ACTIVE).astype(np.float64), np.nan)
    lost = 60.0 * _losses(window, rows)
    typical = np.broadcast_to(middle(lost, 0), lost.shape)
    waits = over(read("nic_transmit_wait_total"), _traffic(window, rows))
    calm = _calm(waits, window.first)
    return [
        Sign("port_down", Layer.NONE, down, 0.5, 1.0, 0.9,
             "{entity} has no link {own:.0%} of the time", down, down, crowds=False),
        Sign("link_rate", Layer.NONE, 1.0 - over(rate, usual), 0.1, 0.5, 0.85,
             "{entity} trained to {own:.3g} B/s, others have {others:.3g}", rate, usual,
             crowds=False),
        Sign("losses_per_minute", Layer.RETRANSMIT, np.log10(1.0 + lost), 0.7, 2.2, 0.8,
             "{entity} loses or damages {own:.3g} packets a minute, others {others:.3g}",
             lost, typical, crowds=False),
        Sign("wait_per_byte", Layer.NONE, np.log2(np.maximum(over(waits, calm), 1e-9)), 1.6, 4.0,
             0.55, "{entity} waits {size:.1f} doublings longer to send a byte than at ease",
             waits, calm, crowds=False),
    ]  # fmt: skip


def _losses(window: Window, rows: Ints) -> Floats:
    """Lost and damaged packets a second; NaN where no counter of them was read."""
    each = np.array([window.metric(EntityKind.NIC, metric)[rows] for metric in _LOSSES])
    found: Floats = np.nansum(each, axis=0)
    found[~np.isfinite(each).any(axis=0)] = np.nan
    return found


def _traffic(window: Window, rows: Ints) -> Floats:
    moved = window.metric(EntityKind.NIC, "nic_transmitted_bytes_total")[rows]
    return np.where(moved >= _TALKS, moved, np.nan)


def _calm(waits: Floats, first: int) -> Floats:
    """What waiting a byte comes to at ease: of each NIC before, else of the calmer NICs now."""
    before = quantile(waits[:, :first], 0.5, 1)[:, None]
    now = quantile(waits, 0.25, 0)[None, :]
    return np.maximum(np.fmin(before, now) * np.ones(waits.shape), 1e-12)


def _groups(window: Window, rows: Ints) -> list[_Group]:
    """All that NICs may stand behind."""
    strip = window.strip(EntityKind.NIC)
    node, rail = strip.node[rows], strip.rail[rows]
    groups = [
        _Group(CulpritKind.NIC, strip.keys[row], window.nodes[strip.node[row]],
               f"NIC {strip.keys[row]}", frozenset((place,)), 0)
        for place, row in enumerate(rows.tolist())
    ]  # fmt: skip
    for one in np.unique(node).tolist():
        name = window.nodes[one]
        behind = frozenset(np.flatnonzero(node == one).tolist())
        if len(behind) > 1:
            groups.append(_Group(CulpritKind.HOST, name, name, f"all NICs of {name}", behind, 1))
    for one in np.unique(rail[rail >= 0]).tolist():
        behind = frozenset(np.flatnonzero(rail == one).tolist())
        groups.append(_Group(CulpritKind.NIC, f"{RAIL}:{one}", "", f"rail {one}", behind, 2))
    for key, nodes in window.places.items():
        if key.startswith(f"{PlaceKind.LEAF}:"):
            behind = frozenset(np.flatnonzero(np.isin(node, nodes)).tolist())
            groups.append(_Group(CulpritKind.FABRIC, key, "", place_words(key), behind, 3))
    whole = frozenset(range(rows.size))
    groups.append(_Group(CulpritKind.FABRIC, FABRIC, "", "the fabric", whole, 4))
    return groups


def _fit(group: _Group, found: Mapping[int, list[Seen]]) -> tuple[float, int]:
    """How well a group explains who shows trouble, and of equal ones the smaller."""
    if not group.members:
        return (0.0, 0)
    shown = len(group.members & found.keys())
    return (round((shown / len(group.members) * shown / len(found)) ** 0.5, 3), -group.order)


def _culprit(
    scene: Scene,
    group: _Group,
    members: Mapping[int, list[Seen]],
    found: Mapping[int, list[Seen]],
    readable: int,
) -> Culprit:
    purity = len(members) / len(group.members)
    alone = len(group.members) == 1
    if alone:
        (seen,) = members.values()
        chain = [one.evidence for one in seen]
    else:
        chain = _summary(group, members, purity)
    elsewhere = len(found) - len(members)
    behind = len(group.members)
    sentence = (
        f"one of {readable} NICs that were read; {elsewhere} others show trouble too"
        if alone
        else f"{len(members)} of {behind} NICs of {group.words} show it, "
        f"{elsewhere} of {readable - behind} others"
    )
    if not alone:
        chain.append(Evidence(sentence, 0.3 * purity, {"inside": purity, "outside": elsewhere}))
    chain.sort(key=lambda one: -one.strength)
    best = max(
        (one for seen in members.values() for one in seen), key=lambda s: s.evidence.strength
    )
    return Culprit(
        kind=group.kind,
        entity=group.entity,
        node=group.node,
        layer=best.sign.layer,
        score=together([one.strength for one in chain]) * (0.5 + 0.5 * purity),
        run=best.run if alone else _common(members),
        evidence=tuple(chain),
        hit=scene.node_names,
        scale=_scale(scene, members, sentence),
    )


def _summary(group: _Group, members: Mapping[int, list[Seen]], purity: float) -> list[Evidence]:
    """One sentence a sign, for all members that show it."""
    by_sign: dict[str, list[Seen]] = {}
    for seen in members.values():
        for one in seen:
            by_sign.setdefault(one.sign.name, []).append(one)
    chain = []
    for name, shown in by_sign.items():
        own = one_quantile(np.array([one.evidence.numbers[name] for one in shown]), 0.5)
        peers = one_quantile(
            np.array([one.evidence.numbers[f"{name}_of_peers"] for one in shown]), 0.5
        )
        strength = float(np.median([one.evidence.strength for one in shown])) * purity
        words = name.replace("_", " ")
        sentence = f"{group.words}: {words} {own:.3g} at {len(shown)} NICs, usual {peers:.3g}"
        chain.append(Evidence(sentence, strength, {name: own, f"{name}_of_peers": peers}))
    return chain


def _common(members: Mapping[int, list[Seen]]) -> Run:
    """When most of them show it."""
    runs = [one.run for seen in members.values() for one in seen]
    first = int(np.median([run.first for run in runs]))
    last = int(np.median([run.last for run in runs]))
    return Run(first, max(first, last), float(np.mean([run.share for run in runs])))


def _scale(scene: Scene, members: Mapping[int, list[Seen]], sentence: str) -> Scale:
    strip = scene.window.strip(EntityKind.NIC)
    rows = _talking(scene.window)
    nodes = {int(strip.node[rows[member]]) for member in members}
    own = nodes & set(scene.job.nodes.tolist())
    return Scale(len(own), scene.job.nodes.size, sentence)


def _acquittal(scene: Scene, rows: Ints, own: set[int]) -> Acquittal:
    mine = rows[sorted(own)]
    lost = _losses(scene.window, mine)[:, scene.first :]
    if not np.isfinite(lost).any():
        return Acquittal("network", "no counter of lost packets was read", read=False)
    most = 60.0 * float(np.nanmax(quantile(lost, 0.5, 1)))
    return Acquittal(
        "network",
        f"{mine.size} NICs were read; at most {most:.3g} packets a minute lost",
        read=True,
    )
