"""Cases: a plant, its jobs, and what goes wrong, or only looks like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from gpuwarden_models.diagnosis.faults import FAULTS, Fault, Truth
from gpuwarden_models.diagnosis.plant import GPUS, Ints, Parts, Site, Work, sound
from gpuwarden_models.diagnosis.readings import STEP_S, play
from gpuwarden_verdict.diagnosis.kinds import CulpritKind
from gpuwarden_verdict.diagnosis.window import NEEDED, Window
from gpuwarden_wire.metrics import EntityKind

MINUTES, FIRST = 100, 50
"""Minutes of a case, and the first that is asked about: what lies before is the past."""
NEGATIVES = ("calm", "burst", "io_heavy", "warm_day", "uneven", "input_bound", "imbalanced")
"""What looks odd though no part is at fault; the last two are the job's own doing."""
_OWN = {"input_bound": CulpritKind.INPUT, "imbalanced": CulpritKind.IMBALANCE}
_JOB = "slurm:1"
Change: TypeAlias = Callable[[], None]
"""What becomes of a job at the onset."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        name: What it is a case of: faults joined by "+", or a negative.
        job: Whose slowness is asked about.
        window: What is read.
        truths: What an answer must name; NOTHING where nothing is abnormal.
        onset: Step from which it holds.
        is_negative: No part is at fault.
    """

    name: str
    job: str
    window: Window
    truths: tuple[Truth, ...]
    onset: int
    is_negative: bool


def make_case(name: str, nodes: int, seed: int) -> Case:
    """A case by its name: fault names joined by "+", or one of NEGATIVES.

    Args:
        name: What it is a case of.
        nodes: Size of the fleet, at least 12.
        seed: Equal arguments give equal cases.
    """
    rng = np.random.default_rng([seed, nodes, *name.encode()])
    site = _site(nodes, rng)
    work = site.works[0]
    negative = name in NEGATIVES
    faults = [] if negative else [FAULTS[part](site, work, rng) for part in name.split("+")]
    elsewhere = _elsewhere(site, rng)
    onset = int(rng.integers(FIRST, FIRST + 20))
    late = _change_job(name, site, work, rng)
    warm = rng.uniform(0.0, 0.03, nodes * GPUS) if name == "warm_day" else None
    base = _odd(sound(nodes), rng)
    spread = rng.normal(1.0, 0.004, nodes * GPUS)

    def state_at(since: float) -> Parts:
        parts = deepcopy(base)
        parts.clock *= spread
        if warm is not None:
            parts.clock -= warm
            parts.heat = np.where(warm > 0.02, warm, 0.0)
        if since >= onset * STEP_S:
            for fault in (*faults, *elsewhere):
                fault.change(parts)
            if late is not None:
                late()
        return parts

    window = _blinded(play(site, state_at, MINUTES, FIRST, rng), rng)
    return Case(name, _JOB, window, _truths(name, faults), onset, negative)


def _odd(parts: Parts, rng: np.random.Generator) -> Parts:
    """What is odd in any fleet and harms nobody: a worn cable, a slower chip, a busy host."""
    gpus, nodes = parts.clock.size, parts.cpu.size
    if rng.random() < 0.5:
        parts.lost[rng.choice(gpus, 2)] = rng.uniform(0.5, 4.0, 2)
    if rng.random() < 0.5:
        parts.clock[rng.choice(gpus, 3)] = rng.uniform(0.95, 0.98, 3)
    if rng.random() < 0.5:
        parts.cpu[rng.choice(nodes, 2)] = rng.uniform(0.9, 0.97, 2)
    if rng.random() < 0.5:
        parts.disk[rng.choice(nodes, 2)] = rng.uniform(1.5, 3.0, 2)
    if rng.random() < 0.3:
        parts.lanes[rng.choice(gpus)] = 16.0
        parts.jam[rng.choice(gpus, 3)] = rng.uniform(1.5, 2.5, 3)
    return parts


def _elsewhere(site: Site, rng: np.random.Generator) -> list[Fault]:
    """Now and then another job has a fault of its own at the same time."""
    if rng.random() >= 0.2 or len(site.works) < 2:
        return []
    other = site.works[int(rng.integers(1, len(site.works)))]
    name = str(rng.choice(["gpu", "host", "disk", "nic"]))
    return [FAULTS[name](site, other, rng)]


def _blinded(window: Window, rng: np.random.Generator) -> Window:
    """Fleets do not read everything: node_exporter has no slots, old kernels no pressure."""
    lacks: list[str] = []
    if rng.random() < 0.25:
        lacks += ["mount_slots_in_use_ratio", "mount_backlog_requests"]
    if rng.random() < 0.15:
        lacks += [name for name in NEEDED[EntityKind.NODE] if "pressure" in name]
    if rng.random() < 0.15:
        lacks += ["nic_transmit_wait_total"]
    if rng.random() < 0.15:
        lacks += ["gpu_power_limit_watts", "gpu_thermal_slowdown_seconds_total"]
    strips = {
        kind: replace(one, values={n: v for n, v in one.values.items() if n not in lacks})
        for kind, one in window.strips.items()
    }
    return replace(window, strips=strips)


def _truths(name: str, faults: Sequence[Fault]) -> tuple[Truth, ...]:
    if name in _OWN:
        return (Truth(_OWN[name], _JOB),)
    return tuple(one.truth for one in faults) or (Truth(CulpritKind.NOTHING, ""),)


def _site(nodes: int, rng: np.random.Generator) -> Site:
    """The job in question on most of the nodes, small ones beside it on the same mount."""
    own = int(nodes * rng.uniform(0.45, 0.75))
    sizes, left = [own], nodes - own
    while left > 0:
        size = min(left, int(rng.choice([1, 2, 4, max(2, nodes // 8)])))
        sizes.append(size)
        left -= size
    order, begin = [], 0
    for size in sizes:
        order.append(np.arange(begin, begin + size))
        begin += size
    per_leaf = max(4, nodes // 6)
    works = [_work(f"slurm:{n + 1}", rows, rng) for n, rows in enumerate(order)]
    return Site(nodes, np.arange(nodes) // per_leaf, works, nodes * float(rng.uniform(5e8, 1.2e9)))


def _work(name: str, nodes: Ints, rng: np.random.Generator) -> Work:
    gpus = nodes.size * GPUS
    compute_s = float(rng.uniform(0.5, 3.0))
    save_every_s = float(rng.uniform(420.0, 1500.0))
    return Work(
        name=name,
        nodes=nodes,
        compute_s=compute_s,
        talk_bytes=0.85 * 50e9 * compute_s * float(rng.uniform(0.35, 0.6)),
        copy_s=compute_s * float(rng.uniform(0.03, 0.08)),
        prepare_s=compute_s * float(rng.uniform(0.4, 0.75)),
        feed_bytes=compute_s * float(rng.uniform(4e7, 1.5e8)),
        cache_bytes=compute_s * float(rng.uniform(1e8, 4e8)),
        save_every_s=save_every_s,
        save_bytes=float(rng.uniform(1.5e10, 6e10)),
        pause_every_s=float(rng.choice([0.0, 0.0, 900.0])),
        share=rng.normal(1.0, 0.006, gpus),
        presses=float(rng.uniform(0.0, 0.02)),
        tells=bool(rng.random() < 0.3),
        watts=np.full(gpus, float(rng.uniform(480, 680))) * rng.normal(1, 0.012, gpus),
        next_save_s=float(rng.uniform(60.0, save_every_s)),
    )


def _change_job(name: str, site: Site, work: Work, rng: np.random.Generator) -> Change | None:
    """Make the job what a negative asks for; what changes at the onset is returned."""
    match name:
        case "burst":
            for one in site.works:
                one.save_bytes = float(rng.uniform(0.8e11, 2e11))
                one.next_save_s = work.next_save_s
                one.save_every_s = work.save_every_s
        case "io_heavy":
            share = float(rng.uniform(0.6, 0.95)) * site.server_bytes / site.nodes
            work.feed_bytes = share * work.compute_s
        case "uneven":
            work.share = work.share * rng.uniform(0.93, 1.0, work.share.size)
        case "imbalanced":
            return _imbalance(work, rng)
        case "input_bound":
            return _input_bound(work, rng)
    return None


def _imbalance(work: Work, rng: np.random.Generator) -> Change | None:
    share = work.share.copy()
    if rng.random() < 0.5:  # stages of a pipeline
        stages = int(rng.choice([2, 4]))
        factors = rng.uniform(0.6, 1.0, stages)
        factors[int(rng.integers(stages))] = 1.15
        share *= np.repeat(factors, -(-share.size // stages))[: share.size]
    else:  # some ranks have the longer sequences
        heavy = rng.choice(share.size, max(2, share.size // 12), replace=False)
        share[heavy] *= rng.uniform(1.25, 1.5)
    if rng.random() < 0.5:
        work.share = share
        return None

    def change() -> None:
        work.share = share

    return change


def _input_bound(work: Work, rng: np.random.Generator) -> Change | None:
    slow_s = work.compute_s * float(rng.uniform(1.5, 2.6))
    presses = float(rng.uniform(0.08, 0.5)) if rng.random() < 0.7 else 0.01

    def change() -> None:
        work.prepare_s, work.presses = slow_s, presses

    if rng.random() < 0.5:
        change()
        return None
    return change
