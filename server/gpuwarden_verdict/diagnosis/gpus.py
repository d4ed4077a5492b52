"""One slow GPU: clock, power, heat or PCIe, against the peers of its own job in the same step.

Reasons that hold a clock are bits as NVML numbers them (nvmlClocksEventReasons): 0x20 software and
0x40 hardware thermal slowdown, 0x80 hardware power brake. The software power cap (0x4) is no sign:
sound GPUs show it at full load all day.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from gpuwarden_verdict.diagnosis.domain import (
    Acquittal,
    Culprit,
    CulpritKind,
    Layer,
    Scale,
)
from gpuwarden_verdict.diagnosis.phases import utilization
from gpuwarden_verdict.diagnosis.robust import mean, over, peers, together
from gpuwarden_verdict.diagnosis.scene import Finding, Scene
from gpuwarden_verdict.diagnosis.signs import Seen, Sign, find_signs
from gpuwarden_verdict.diagnosis.window import Flags, Floats, Ints
from gpuwarden_wire.metrics import EntityKind

_THERMAL, _BRAKE = 0x20 | 0x40, 0x80
_ORDER = (Layer.THERMAL, Layer.POWER, Layer.PCIE, Layer.CLOCK)
_NODE_SHARE = 0.5
_LOADED = 0.15


def find_gpus(scene: Scene) -> Finding:
    """GPUs that hold their job up, and nodes of which most GPUs do."""
    rows = scene.rows(EntityKind.GPU)
    strip = scene.window.strip(EntityKind.GPU)
    names = tuple(
        f"GPU {strip.rail[row]} of {scene.window.nodes[strip.node[row]]}" for row in rows.tolist()
    )
    found = find_signs(scene, gpu_signs(scene, rows), names, _loaded(scene))
    hot = _whole_nodes(found, strip.node[rows], scene)
    culprits = [
        _culprit(scene, int(rows[place]), seen)
        for place, seen in found.items()
        if int(strip.node[rows[place]]) not in hot
    ]
    culprits += [_node_culprit(scene, node, members) for node, members in hot.items()]
    return Finding(tuple(culprits), _acquittal(scene, rows))


def _loaded(scene: Scene) -> Flags:
    """Steps in which clocks and links mean something: idle parts save power."""
    used = np.nan_to_num(utilization(scene.window, scene.job))
    return scene.at_work | (scene.phases.running & (used >= _LOADED))


def gpu_signs(scene: Scene, rows: Ints) -> list[Sign]:
    """What may be odd about GPUs, of these rows."""
    return [*_clock_signs(scene, rows), *_limit_signs(scene, rows), *_link_signs(scene, rows)]


def _read(scene: Scene, rows: Ints, metric: str) -> Floats:
    return scene.window.metric(EntityKind.GPU, metric)[rows]


def _clock_signs(scene: Scene, rows: Ints) -> list[Sign]:
    clock = _read(scene, rows, "gpu_sm_clock_hertz")
    limit = _read(scene, rows, "gpu_power_limit_watts")
    clocks, limits = peers(clock), peers(limit)
    slower, lower = 1.0 - over(clock, clocks), 1.0 - over(limit, limits)
    clock_words = "{entity} clocks at {own:.3g} Hz where its peers have {others:.3g}"
    limit_words = "{entity} may draw {own:.0f} W, its peers {others:.0f}"
    return [
        Sign("clock_hertz", Layer.CLOCK, slower, 0.06, 0.25, 0.85, clock_words, clock, clocks),
        Sign("power_limit_watts", Layer.POWER, lower, 0.05, 0.3, 0.7, limit_words, limit, limits),
    ]


def _limit_signs(scene: Scene, rows: Ints) -> list[Sign]:
    reasons = _read(scene, rows, "gpu_clock_event_reasons")
    counted = _read(scene, rows, "gpu_thermal_slowdown_seconds_total")
    braking = _read(scene, rows, "gpu_power_brake_seconds_total")
    heat = _read(scene, rows, "gpu_temperature_celsius")
    watts = _read(scene, rows, "gpu_power_watts")
    hot, held = _held(counted, reasons, _THERMAL), _held(braking, reasons, _BRAKE)
    hot_words = "{entity} is slowed by heat {own:.0%} of the time, at {others:.0f} °C"
    held_words = "the power brake holds {entity} {own:.0%} of the time, at {others:.0f} W"
    return [
        Sign("thermal_share", Layer.THERMAL, hot, 0.05, 0.5, 0.8, hot_words, hot, heat),
        Sign("brake_share", Layer.POWER, held, 0.05, 0.5, 0.8, held_words, held, watts),
    ]


def _link_signs(scene: Scene, rows: Ints) -> list[Sign]:
    width = _read(scene, rows, "gpu_pcie_link_width")
    widest = _read(scene, rows, "gpu_pcie_link_width_max")
    speed = _read(scene, rows, "gpu_pcie_link_generation")
    fastest = _read(scene, rows, "gpu_pcie_link_generation_max")
    narrow, slow = 1.0 - over(width, widest), 1.0 - over(speed, fastest)
    lanes = "the PCIe link of {entity} has {own:.0f} lanes of {others:.0f}"
    generation = "the PCIe link of {entity} runs at generation {own:.0f} of {others:.0f} under load"
    return [
        Sign("pcie_width", Layer.PCIE, narrow, 0.2, 0.75, 0.85, lanes, width, widest),
        Sign("pcie_generation", Layer.PCIE, slow, 0.15, 0.6, 0.8, generation, speed, fastest),
    ]


def _held(seconds: Floats, reasons: Floats, bits: int) -> Floats:
    """Share of the time in which a limiter held the clock: counted, else as the bits say."""
    shown = np.where(
        np.isfinite(reasons), (np.nan_to_num(reasons).astype(np.int64) & bits) > 0, np.nan
    )
    return np.where(np.isfinite(seconds), seconds, shown)


def _whole_nodes(
    found: Mapping[int, list[Seen]], node: Ints, scene: Scene
) -> dict[int, list[Seen]]:
    """Nodes of which at least half of the GPUs, and three, are held by heat or power."""
    held = {
        place: [one for one in seen if one.sign.layer in (Layer.THERMAL, Layer.POWER)]
        for place, seen in found.items()
    }
    counts = Counter(int(node[place]) for place, seen in held.items() if seen)
    sizes = Counter(node.tolist())
    whole = {one for one, n in counts.items() if n >= max(3, _NODE_SHARE * sizes[one])}
    members: dict[int, list[Seen]] = {}
    for place, seen in held.items():
        if int(node[place]) in whole:
            members.setdefault(int(node[place]), []).extend(seen)
    return members


def _culprit(scene: Scene, row: int, seen: list[Seen]) -> Culprit:
    strip = scene.window.strip(EntityKind.GPU)
    node = scene.window.nodes[strip.node[row]]
    layers = {one.sign.layer for one in seen}
    chain = sorted((one.evidence for one in seen), key=lambda one: -one.strength)
    longest = max(seen, key=lambda one: one.evidence.strength)
    sentence = f"one GPU of {scene.rows(EntityKind.GPU).size} in the job"
    return Culprit(
        kind=CulpritKind.GPU,
        entity=strip.keys[row],
        node=node,
        layer=next(one for one in _ORDER if one in layers),
        score=together([one.strength for one in chain]),
        run=longest.run,
        evidence=tuple(chain),
        hit=scene.node_names,
        scale=Scale(1, scene.job.nodes.size, sentence),
    )


def _node_culprit(scene: Scene, node: int, members: list[Seen]) -> Culprit:
    """Heat or power of a whole node is not its GPUs' fault."""
    name = scene.window.nodes[node]
    chain = sorted((one.evidence for one in members), key=lambda one: -one.strength)
    return Culprit(
        kind=CulpritKind.HOST,
        entity=name,
        node=name,
        layer=members[0].sign.layer,
        score=together([one.strength for one in chain[:2]]),
        run=max(members, key=lambda one: one.evidence.strength).run,
        evidence=tuple(chain[:4]),
        hit=scene.node_names,
        scale=Scale(
            1,
            scene.job.nodes.size,
            f"{len(members)} readings of the GPUs of one node, and of no other",
        ),
    )


def _acquittal(scene: Scene, rows: Ints) -> Acquittal:
    clock = scene.window.metric(EntityKind.GPU, "gpu_sm_clock_hertz")[rows]
    at_work = scene.at_work & (np.arange(scene.window.steps) >= scene.first)
    seen = clock[:, at_work]
    if not np.isfinite(seen).any():
        return Acquittal("GPUs", "clocks were not read while the job computed", read=False)
    lowest = over(seen, peers(seen))
    count = int(np.isfinite(seen).any(axis=1).sum())
    slowest = min((mean(one) for one in lowest), default=float("nan"))
    least = f", the slowest at {slowest:.0%} of its peers' clock" if slowest == slowest else ""
    return Acquittal("GPUs", f"{count} of {rows.size} GPUs were read{least}", read=True)
