"""What is the job's own: an input pipeline that is too slow, or unequal work of its ranks."""

from __future__ import annotations

import numpy as np

from gpuwarden_verdict.diagnosis.domain import Culprit, CulpritKind, Evidence, Layer, Scale
from gpuwarden_verdict.diagnosis.hosts import node_utilization
from gpuwarden_verdict.diagnosis.phases import Phase, gpu_effort
from gpuwarden_verdict.diagnosis.robust import (
    Run,
    grade,
    mean,
    middle,
    one_quantile,
    over,
    quantile,
    together,
)
from gpuwarden_verdict.diagnosis.scene import Scene
from gpuwarden_verdict.diagnosis.window import Floats
from gpuwarden_wire.metrics import EntityKind

_STARVED = 0.15
"""Share of the time in which GPUs have nothing to do, from which they wait for their input."""
_LASTING = 10.0
"""Steps from which it is more than a pause."""
_ALIKE = 0.75
_UNEQUAL = 0.11
_FEWEST = 4


def find_program(scene: Scene) -> tuple[Culprit, ...]:
    """Candidates that blame no part of the plant."""
    return tuple(one for one in (_input(scene), _imbalance(scene)) if one is not None)


def _input(scene: Scene) -> Culprit | None:
    """All nodes alike have GPUs without work, outside of any collective."""
    rows = scene.rows(EntityKind.NODE)
    idle = 1.0 - node_utilization(scene, rows)
    read = np.isfinite(idle)
    alike = (idle >= _STARVED).sum(axis=0) >= _ALIKE * np.maximum(1, read.sum(axis=0))
    saves = np.convolve(scene.phases.at(Phase.SAVE), (1, 1, 1), "same") > 0  # and their edges
    tells = read.any(axis=0) & ~saves & ~scene.phases.at(Phase.IDLE)
    run = scene.run(alike, tells & scene.phases.running)
    if run is None or not rows.size:
        return None
    gap = mean(middle(idle, 0)[run.steps])
    cpu = scene.window.metric(EntityKind.NODE, "node_pressure_cpu_seconds_total")[rows]
    pressed = mean(middle(cpu, 0)[run.steps])
    chain = [
        Evidence(
            f"the GPUs of all nodes alike have nothing to do {gap:.0%} of the time, and wait in no "
            "collective",
            0.65 * grade(gap, _STARVED - 0.1, 0.4) * run.share * grade(run.length, 0.0, _LASTING),
            {"idle_share": gap},
        )
    ]
    if pressed == pressed and pressed >= 0.05:
        chain.append(
            Evidence(
                f"programs on its hosts wait for a CPU {pressed:.0%} of the time, on all alike",
                0.5 * grade(pressed, 0.03, 0.2) * grade(run.length, 0.0, _LASTING),
                {"cpu_pressure": pressed},
            )
        )
    return _own(scene, CulpritKind.INPUT, chain, run.first, run.last)


def _imbalance(scene: Scene) -> Culprit | None:
    """Some ranks do steadily more than others at the same clock."""
    effort = gpu_effort(scene.window, scene.job)
    spread = _spread(effort)
    run = scene.run(spread >= _UNEQUAL, np.isfinite(spread) & scene.at_work)
    if run is None or effort.shape[0] < _FEWEST:
        return None
    inside = np.where(scene.at_work[None, run.steps], effort[:, run.steps], np.nan)
    each, steady = np.array([mean(one) for one in inside]), _steady(inside)
    unequal = float(_spread(each[:, None])[0])
    least, most = one_quantile(each, 0.02), one_quantile(each, 0.98)
    lasting = grade(run.length, 0.0, _LASTING)
    chain = [
        Evidence(
            f"its ranks work unequally, and always the same ones: GPUs put in {least:.0%} to "
            f"{most:.0%} of full effort at the same clock (steadiness {steady:.2f})",
            0.85 * grade(unequal, 0.5 * _UNEQUAL, 0.25) * max(0.0, steady) * lasting * run.share,
            {"spread": unequal, "steadiness": steady},
        )
    ]
    return _own(scene, CulpritKind.IMBALANCE, chain, run.first, run.last)


def _spread(effort: Floats) -> Floats:
    """How far the busiest twentieth is above the idlest tenth, of the median; shape (steps,)."""
    low, typical, high = (quantile(effort, q, 0) for q in (0.1, 0.5, 0.96))
    return over(high - low, typical)


def _steady(effort: Floats) -> float:
    """How much the ranking of GPUs stays the same, -1..1: correlation of the halves."""
    told = np.flatnonzero(np.isfinite(effort).any(axis=0))
    if told.size < 4:
        return 0.0
    halves = [np.array([mean(one) for one in effort[:, part]]) for part in np.array_split(told, 2)]
    read = np.isfinite(halves[0]) & np.isfinite(halves[1])
    first, second = (half[read] for half in halves)
    if first.size < 4 or first.std() == 0 or second.std() == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def _own(scene: Scene, kind: CulpritKind, chain: list[Evidence], first: int, last: int) -> Culprit:
    sentence = f"all {scene.job.nodes.size} nodes of the job alike, and no other job's"
    return Culprit(
        kind=kind,
        entity=scene.job.job,
        node="",
        layer=Layer.NONE,
        score=together([one.strength for one in chain]),
        run=Run(first, last, 1.0),
        evidence=tuple(sorted(chain, key=lambda one: -one.strength)),
        hit=scene.node_names,
        scale=Scale(scene.job.nodes.size, scene.job.nodes.size, sentence),
    )
