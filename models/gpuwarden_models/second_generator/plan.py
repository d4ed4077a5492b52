"""Who runs what, and what happens when: the part of a recording that the labels tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.second_generator.parameters import KINDS, PARAMETERS, Kind

HOUR_S = 3600.0
GPUS, NICS = 8, 4
START_S = 1_780_272_000.0
_RACK, _LEAF = 4, 8
_TRIES = 30


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a program; its regimes follow from `seed`, as far as it gets."""

    job_id: int
    nodes: tuple[int, ...]
    start: float
    end: float
    seed: int
    state: str = "COMPLETED"


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happens.

    Attributes:
        name: Of its kind, in KINDS.
        node: Number of the node, of the first one where it is a job's.
        part: Number of the GPU or port in its node.
        announced_at: Epoch seconds of the first trace; `start` where nothing announces it.
        start: Of its onset.
        end: From when all is well again.
        seed: Of its own draws.
        noticed_at: When the job fails.
        back_at: When the scheduler starts the job anew.
        job_id: Of the job that it belongs to, 0 for all others.
        nodes: Nodes that it touches.
    """

    name: str
    node: int
    part: int
    announced_at: float
    start: float
    end: float
    seed: int
    noticed_at: float
    back_at: float
    job_id: int = 0
    nodes: tuple[int, ...] = ()

    @property
    def kind(self) -> Kind:
        """Its row in KINDS."""
        return KINDS[self.name]


def rack_of(node: int) -> int:
    """Number of the rack of a node."""
    return node // _RACK


def leaf_of(node: int) -> int:
    """Number of the leaf switch of a node."""
    return node // _LEAF


def lognormal(rng: np.random.Generator, shape: tuple[float, float]) -> float:
    """One draw of (median, sigma)."""
    return float(shape[0] * np.exp(shape[1] * rng.standard_normal()))


def draw_jobs(rng: np.random.Generator, nodes: int, seconds: float) -> list[Job]:
    """Renewals of idling and running, in blocks of nodes whose sizes have a Pareto tail."""
    jobs: list[Job] = []
    end, first = START_S + seconds, 0
    while first < nodes:
        size = min(1 + int(rng.pareto(PARAMETERS.block_tail)), nodes - first, max(1, nodes // 2))
        block = tuple(range(first, first + size))
        # Most blocks are in the middle of a run when the recording begins.
        at = START_S - float(rng.exponential(2 * HOUR_S))
        while at < end:
            until = at + max(600.0, HOUR_S * lognormal(rng, PARAMETERS.run_h))
            if until > START_S:
                jobs.append(
                    Job(10_000 + 100 * len(jobs), block, at, until, int(rng.integers(2**31)))
                )
            at = until + HOUR_S * PARAMETERS.idle_h * float(rng.weibull(0.7))
        first += size
    return jobs


def draw_incidents(
    rng: np.random.Generator, nodes: int, seconds: float, density: float, jobs: Sequence[Job]
) -> list[Incident]:
    """What happens: numbers of Poisson, places of a Pareto mixture, never two at once at a node."""
    hours = nodes * GPUS * seconds / HOUR_S
    wear = np.ones(nodes * GPUS)
    worn = rng.random(wear.size) < PARAMETERS.wear_share
    wear[worn] += 5.0 * rng.pareto(PARAMETERS.wear_tail, int(worn.sum()))
    found: list[Incident] = []
    for action, rate in (
        (True, PARAMETERS.faults_per_gpu_hour),
        (False, PARAMETERS.confounders_per_gpu_hour),
    ):
        names = [name for name, kind in KINDS.items() if kind.action is action]
        shares = np.array([KINDS[name].share for name in names])
        for _ in range(int(rng.poisson(density * rate * hours))):
            name = names[int(rng.choice(len(names), p=shares / shares.sum()))]
            tries = (_draw(rng, name, wear, seconds, jobs) for _ in range(_TRIES))
            free = (one for one in tries if one and not any(_meet(one, old) for old in found))
            if (one := next(free, None)) is not None:
                found.append(one)
    return sorted(found, key=lambda one: one.start)


def _draw(
    rng: np.random.Generator,
    name: str,
    wear: NDArray[np.float64],
    seconds: float,
    jobs: Sequence[Job],
) -> Incident | None:
    kind = KINDS[name]
    place = int(rng.choice(wear.size, p=wear / wear.sum()))
    node, part = divmod(place, GPUS)
    start = START_S + seconds * float(rng.uniform(0.05, 0.97))
    lead = HOUR_S * lognormal(rng, PARAMETERS.precursor_h) if kind.announced else 0.0
    end = start + kind.lasts * min(HOUR_S * lognormal(rng, PARAMETERS.repair_h), 0.3 * seconds)
    running = [job for job in jobs if node in job.nodes and job.start + 300 < start < job.end - 60]
    touched: tuple[int, ...] = (node,)
    if kind.entity == "job":
        if not running:
            return None
        touched, end = running[0].nodes, start + 60.0
    elif kind.entity == "mount":
        touched = tuple(range(wear.size // GPUS))
    elif name in ("power_cap", "hot_room"):
        touched = tuple(n for n in range(wear.size // GPUS) if rack_of(n) == rack_of(node))
    noticed = start + min(lognormal(rng, PARAMETERS.notice_s), 600.0)
    return Incident(
        name, node, part if kind.entity == "gpu" else part % NICS,
        max(start - lead, START_S + 0.02 * seconds), start, end, int(rng.integers(2**31)),
        noticed, noticed + lognormal(rng, PARAMETERS.restart_s),
        nodes=touched,
    )  # fmt: skip


def _meet(one: Incident, other: Incident) -> bool:
    apart = one.end + HOUR_S / 2 < other.announced_at or other.end + HOUR_S / 2 < one.announced_at
    return not apart and bool({*one.nodes} & {*other.nodes})


def as_it_went(
    jobs: Sequence[Job], incidents: Sequence[Incident]
) -> tuple[list[Job], list[Incident]]:
    """Jobs after what stopped them, and incidents with the job that each program's fault hit.

    A job that is stopped comes again after a while, without the ill node; a node under repair
    takes no other job either. A program's fault in a job that no longer runs does not happen.
    """
    went, happened = list(jobs), []
    for one in incidents:
        hit = next(
            (job for job in went if one.node in job.nodes and job.start < one.start < job.end), None
        )
        of_job = one.kind.entity == "job"
        if hit is not None and of_job:
            one = replace(one, job_id=hit.job_id, nodes=hit.nodes)
        if hit is not None or not of_job:
            happened.append(one)
        if hit is not None and one.kind.stops:
            place = went.index(hit)
            went[place : place + 1] = _split(hit, one)
    return [kept for job in went if (kept := _without_ill(job, happened)).nodes], happened


def _without_ill(job: Job, incidents: Sequence[Incident]) -> Job:
    ill = {
        one.node
        for one in incidents
        if one.kind.stops and not one.job_id and one.start < job.start < one.end
    }
    return replace(job, nodes=tuple(node for node in job.nodes if node not in ill))


def _split(job: Job, one: Incident) -> list[Job]:
    state = "FAILED" if one.job_id or one.kind.entity != "node" else "NODE_FAIL"
    found = [replace(job, end=min(one.noticed_at, job.end), state=state)]
    if one.back_at < job.end:
        found.append(
            replace(job, job_id=job.job_id + 1, start=one.back_at, seed=job.seed ^ one.seed)
        )
    return found
