"""Limits that are learnt from the fleet's own distribution, so that alarms keep to a budget.

A detector's statistic is looked at once in its persistence for every entity: one trial. Trials are
counted in bins, scope by scope, and forgotten with FORGET_S. The tail is not read off the rare
trials, among which the sick ones are: it is drawn on from quantiles that a few sick entities cannot
move, as an exponential (of counts, which vary over decades: as a power law), and the limit is where
that tail has as many trials left as the budget allows. Trials of one entity hang together, so that
there will rather be fewer alarms than it says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.tuning.rules import Tuning

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

DAY_S = 86400.0
FORGET_S = 7 * DAY_S
"""Time constant with which trials are forgotten: a week holds every day's rhythm."""
RELEARN_S = DAY_S
"""Time constant with which a learnt limit follows what is seen now."""
LEAST_AGE_S = 2 * 3600.0
LEAST_ENTITY_HOURS = 24.0
LEAST_TRIALS = 1000.0
"""A scope keeps the default until all three are passed: 64 GPUs do so in two hours, 8 in eleven."""

BINS = 96
_BELOW_FLOOR = 16.0  # the lowest bin's edge, a share of the floor
_ABOVE_CEILING = 2.0
_MOST_TAIL = 1.5
"""The tail beyond the 90th percentile is believed to fall at most so much more slowly than the
shoulder before it: more than that are sick entities, or another population."""

_LIMIT, _FIRST_AT, _SAMPLED_AT, _HOURS, _TRIALS_A_DAY = range(5)
_STANDING = 5
_SEEN, _LEARNT = "seen", "learnt"


@dataclass(frozen=True, slots=True)
class LimitRule:
    """How a detector's limit is set.

    Attributes:
        unit: Of the statistic and the limit.
        default: Holds before enough was seen.
        floor: The least effect that means anything: no quiet fleet goes below.
        ceiling: What is beyond it is odd in any fleet.
        persist_s: How long the statistic must be beyond the limit, seconds; at least three sweeps.
        budget: Alarms a 1,000 entity-days that the limit is learnt for; None: the default holds for
            good, as with states and counts of which one is a fault.
        heavy: Whether the statistic varies over decades, as rates of errors do.
    """

    unit: str
    default: float
    floor: float
    ceiling: float
    persist_s: float
    budget: float | None = 1.0
    heavy: bool = False

    @property
    def in_words(self) -> str:
        """The rule for a table."""
        lasting = f" for {self.persist_s:g} s" if self.persist_s else ""
        if self.budget is None:
            return f"> {self.default:g} {self.unit}{lasting}"
        return (
            f"> {self.default:g} {self.unit}{lasting}, then learnt: {self.floor:g} to"
            f" {self.ceiling:g}, {self.budget:g} alarms in 1,000 days"
        )


class LimitSource(StrEnum):
    """Where a limit comes from."""

    DEFAULT = "default"  # nothing is learnt for this detector, or not enough was seen
    LEARNT = "learnt"
    OVERRIDE = "override"  # the policy says so


@dataclass(frozen=True, slots=True)
class Scopes:
    """What limits are learnt for: a pool, of GPUs a model in a pool.

    Attributes:
        names: By number; "pool/model" or "pool".
        pools: Pool of each.
        of: Number of each entity's scope, int64, shape (N,).
    """

    names: tuple[str, ...]
    pools: tuple[str, ...]
    of: I64


@dataclass(frozen=True, slots=True)
class ScopedRule:
    """A detector's rule, and the scopes for which it has limits."""

    detector: str
    rule: LimitRule
    scopes: Scopes


@dataclass(frozen=True, slots=True)
class Threshold:
    """One limit in force, as people see it.

    Attributes:
        detector: Name.
        scope: Pool, or pool and model.
        limit: In force, in `unit`.
        unit: Of the limit.
        source: Where it comes from.
        budget: Alarms a 1,000 entity-days it is learnt for; None where nothing is learnt.
        floor: Least limit that is ever learnt.
        default: Holds before enough was seen.
        persist_s: How long it must be passed, seconds.
        entity_hours: What was seen of it, entity-hours (of GPU detectors: GPU-hours).
        expected_a_day: Alarms a day at this limit, at most; None where nothing was seen.
    """

    detector: str
    scope: str
    limit: float
    unit: str
    source: LimitSource
    budget: float | None
    floor: float
    default: float
    persist_s: float
    entity_hours: float
    expected_a_day: float | None


def limits_now(
    memory: SweepMemory, tuning: Tuning, detector: str, rule: LimitRule, scopes: Scopes
) -> F32:
    """Limit in force of every entity, float32, shape (N,)."""
    of_scope = [
        _in_force(memory, tuning, detector, rule, name, pool)[0]
        for name, pool in zip(scopes.names, scopes.pools, strict=True)
    ]
    limits: F32 = np.array(of_scope, np.float32)[scopes.of]
    return limits


def learn(
    memory: SweepMemory,
    tuning: Tuning,
    detector: str,
    rule: LimitRule,
    scopes: Scopes,
    statistic: F32,
    now: float,
) -> None:
    """Count one trial an entity where the last one is a persistence ago, and draw the limits anew.

    Args:
        memory: Where trials and limits are kept.
        tuning: What the policy says.
        detector: Whose statistic it is.
        rule: Of its limit.
        scopes: Of the entities.
        statistic: Shape (N,); NaN is no trial.
        now: Epoch seconds.
    """
    each_s = max(rule.persist_s, 60.0)
    clock = memory.table(detector, "clock", "", 1)
    if rule.budget is None or now - np.nan_to_num(clock[0], nan=-math.inf) < each_s:
        return
    clock[0] = now
    seen = ~np.isnan(statistic)
    placed = scopes.of[seen] * BINS + _bins(statistic[seen], rule)
    counts = np.bincount(placed, minlength=len(scopes.names) * BINS).reshape(-1, BINS)
    for name, pool, count in zip(scopes.names, scopes.pools, counts, strict=True):
        if count.any():
            budget = tuning.rule(detector, pool).budget
            _note(memory, detector, rule, name, count, now, each_s, budget)


def thresholds(memory: SweepMemory, tuning: Tuning, of: ScopedRule) -> list[Threshold]:
    """What is in force for a detector, scope by scope; callable from any thread."""
    return [
        _threshold(memory, tuning, of, name, pool)
        for name, pool in zip(of.scopes.names, of.scopes.pools, strict=True)
    ]


def _threshold(
    memory: SweepMemory, tuning: Tuning, of: ScopedRule, scope: str, pool: str
) -> Threshold:
    rule = of.rule
    limit, source = _in_force(memory, tuning, of.detector, rule, scope, pool)
    standing = memory.written(of.detector, _LEARNT, scope)
    trials = memory.written(of.detector, _SEEN, scope)
    said = tuning.rule(of.detector, pool).budget
    hours, expected = 0.0, None
    if standing is not None and trials is not None and trials.any():
        hours = float(standing[_HOURS])
        expected = _tail_beyond(trials, rule, limit) * float(standing[_TRIALS_A_DAY])
    return Threshold(
        detector=of.detector,
        scope=scope,
        limit=limit,
        unit=rule.unit,
        source=source,
        budget=rule.budget if said is None or rule.budget is None else said,
        floor=rule.floor,
        default=rule.default,
        persist_s=rule.persist_s,
        entity_hours=hours,
        expected_a_day=expected,
    )


def _in_force(
    memory: SweepMemory, tuning: Tuning, detector: str, rule: LimitRule, scope: str, pool: str
) -> tuple[float, LimitSource]:
    said = tuning.rule(detector, pool).limit
    if said is not None:
        return said, LimitSource.OVERRIDE
    if rule.budget is not None:
        standing = memory.written(detector, _LEARNT, scope)
        if standing is not None and not math.isnan(standing[_LIMIT]):
            return float(standing[_LIMIT]), LimitSource.LEARNT
    return rule.default, LimitSource.DEFAULT


def _note(
    memory: SweepMemory,
    detector: str,
    rule: LimitRule,
    scope: str,
    count: I64,
    now: float,
    each_s: float,
    budget: float | None,
) -> None:
    """Add the trials of one scope, and let its limit follow."""
    standing = memory.table(detector, _LEARNT, scope, _STANDING)
    trials = memory.table(detector, _SEEN, scope, BINS)
    before = float(standing[_SAMPLED_AT])
    if math.isnan(before):
        standing[_FIRST_AT], standing[_HOURS], trials[:] = now, 0.0, 0.0
        before = now
    since = max(0.0, now - before)
    standing[_SAMPLED_AT] = now
    standing[_HOURS] += count.sum() * min(since, 2.0 * each_s) / 3600.0
    standing[_TRIALS_A_DAY] = count.sum() * DAY_S / each_s
    trials *= math.exp(-since / FORGET_S)
    trials += count
    enough = (
        now - standing[_FIRST_AT] >= LEAST_AGE_S
        and standing[_HOURS] >= LEAST_ENTITY_HOURS
        and trials.sum() >= LEAST_TRIALS
    )
    if not enough:
        return
    allowed = (rule.budget or 0.0) if budget is None else budget
    target = limit_for(trials, rule, allowed * each_s / (1000.0 * DAY_S))
    learnt = float(standing[_LIMIT])
    step = 1.0 if math.isnan(learnt) else -math.expm1(-since / RELEARN_S)
    from_here = target if math.isnan(learnt) else learnt
    standing[_LIMIT] = from_here + step * (target - from_here)


def limit_for(trials: F64, rule: LimitRule, share: float) -> float:
    """The limit beyond which a share of trials is expected, within floor and ceiling.

    Args:
        trials: By bin, shape (BINS,).
        rule: Of the limit.
        share: Of all trials, 0..1; 0 gives the ceiling.
    """
    if share <= 0.0:
        return rule.ceiling
    base, scale = _fit(trials, rule)
    if scale <= 0.0:
        return rule.floor
    limit = base + scale * math.log(max(0.1 / share, 1.0))
    value = math.exp(min(limit, 700.0)) if rule.heavy else limit
    return min(max(value, rule.floor), rule.ceiling)


def _tail_beyond(trials: F64, rule: LimitRule, limit: float) -> float:
    """Share of trials expected beyond a limit."""
    base, scale = _fit(trials, rule)
    if scale <= 0.0:
        return 0.0
    at = math.log(max(limit, 1e-300)) if rule.heavy else limit
    return min(0.1, 0.1 * math.exp((base - at) / scale))


def _fit(trials: F64, rule: LimitRule) -> tuple[float, float]:
    """90th percentile and scale of the tail beyond it; scale 0 where the tail is below all bins."""
    q75, q90, q97 = (_quantile(trials, rule, q) for q in (0.75, 0.9, 0.97))
    if q97 <= _edges(rule)[0]:
        return 0.0, 0.0
    if rule.heavy:
        q75, q90, q97 = math.log(q75), math.log(q90), math.log(q97)
    shoulder = (q90 - q75) / math.log(0.25 / 0.1)
    tail = (q97 - q90) / math.log(0.1 / 0.03)
    return q90, min(tail, _MOST_TAIL * shoulder) if shoulder > 0.0 else tail


def _quantile(trials: F64, rule: LimitRule, share: float) -> float:
    """A quantile, within its bin by the share that lies below; the first edge where lower."""
    edges = _edges(rule)
    below = np.cumsum(trials)
    wanted = share * below[-1]
    place = int(np.searchsorted(below, wanted))
    if place == 0:
        return float(edges[0])
    inside = (wanted - below[place - 1]) / max(trials[place], 1e-12)
    low, high = edges[place - 1], edges[min(place, BINS - 2)]
    return float(low * (high / low) ** min(max(inside, 0.0), 1.0))


def _edges(rule: LimitRule) -> F64:
    """Edges between the bins, in the statistic's unit, shape (BINS - 1,), each a share larger."""
    low, high = rule.floor / _BELOW_FLOOR, rule.ceiling * _ABOVE_CEILING
    edges: F64 = np.geomspace(low, high, BINS - 1)
    return edges


def _bins(statistic: F32, rule: LimitRule) -> I64:
    """Bin of each number: 0 for what is below the first edge."""
    low, high = rule.floor / _BELOW_FLOOR, rule.ceiling * _ABOVE_CEILING
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.log(np.maximum(statistic, low) / low) / math.log(high / low) * (BINS - 2)
    bins: I64 = np.clip(np.ceil(steps), 0, BINS - 1).astype(np.int64)
    return bins
