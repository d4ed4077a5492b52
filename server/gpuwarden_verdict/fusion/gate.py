"""May the learnt score act alone? Says what is missing where it may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import exp, lgamma, log

from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.fusion.artifact import FusionModel
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.signals import Plane, Risk

WANTED_PLANES = 2
PLANE_LOG_ODDS = 0.5
"""A plane supports a risk where its features together raise the log-odds by this (odds x 1.6)."""

TOLERATED_PER_GPU_DAY = 0.03 / 500
"""False exclusions a GPU and day that a trial must bound: 0.03 a day on 500 GPUs."""

_CONFIDENCE = 0.95
_DIGITS_TOLD = 12
_NEAR = 1e-12


class TrialKind(StrEnum):
    """How a model was tried on the very fleet."""

    BACKTEST = "backtest"
    SHADOW = "shadow"


_WORDS = {TrialKind.BACKTEST: "backtest", TrialKind.SHADOW: "shadow run"}


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A recorded trial of a model on this fleet.

    Attributes:
        kind: How it was tried.
        model_version: What was tried.
        gpu_days: GPUs x days that were healthy.
        false_actions: Exclusions that would have been false.
        recorded_at: Epoch seconds.
        model_digest: SHA-256 of the MANIFEST.json of what was tried.
        exclude_confidence: What would be excluded at this confidence or above was counted: the
            lowest limit that the trial speaks for.
    """

    kind: TrialKind
    model_version: str
    gpu_days: float
    false_actions: int
    recorded_at: float
    model_digest: str
    exclude_confidence: float

    @property
    def bound_per_gpu_day(self) -> float:
        """Upper 95 % bound of the rate of false exclusions, exact Poisson: 3 / GPU-days if none."""
        if self.gpu_days <= 0:
            return float("inf")
        return poisson_upper(self.false_actions) / self.gpu_days


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether the score may exclude by itself.

    Attributes:
        missing: What is missing for it, in sentences.
    """

    missing: tuple[str, ...]

    @property
    def open(self) -> bool:
        """Nothing is missing."""
        return not self.missing


def score_gate(
    model: FusionModel | None, risk: Risk | None, pool: PoolPolicy, trials: Sequence[TrialRun]
) -> Gate:
    """The gate for one entity's risk.

    Args:
        model: Model in use, None where none is loaded.
        risk: The entity's risk, None where it has none: then only the standing conditions count.
        pool: Rules of its pool.
        trials: On this fleet, the best first; one that misses nothing suffices.
    """
    if model is None:
        return Gate(("no model is loaded: train one, or set the model folder",))
    missing = []
    if not pool.score_may_exclude:
        missing.append(f"pool {pool.name}: score_may_exclude is false in the policy")
    missing += _trials_missing(model, pool, trials)
    if risk is not None:
        missing += _planes_missing(risk)
    return Gate(tuple(missing))


def planes_gate(risk: Risk | None) -> Gate:
    """The part of the gate that hangs on the risk alone, for asking what an open gate would do."""
    return Gate(() if risk is None else tuple(_planes_missing(risk)))


def exclude_limits(pool: PoolPolicy) -> frozenset[float]:
    """The confidences from which a pool excludes: one, or several where rules differ by class."""
    if not pool.rules:
        return frozenset({pool.exclude_confidence})
    said = (pool.confidence_of(fault_class, Rung.EXCLUDE) for fault_class in FaultClass)
    return frozenset(pool.exclude_confidence if one is None else one for one in said)


def supporting_planes(risk: Risk) -> Mapping[Plane, float]:
    """Planes whose features together raise the log-odds by PLANE_LOG_ODDS or more, and how much."""
    raised: dict[Plane, float] = {}
    for line in risk.contributions:
        if line.plane is not None:
            raised[line.plane] = raised.get(line.plane, 0.0) + line.log_odds
    return {plane: total for plane, total in raised.items() if total >= PLANE_LOG_ODDS}


def _trials_missing(
    model: FusionModel, pool: PoolPolicy, trials: Sequence[TrialRun]
) -> Sequence[str]:
    own = (trial for trial in trials if trial.model_version == model.version)
    none = [f"no backtest or shadow run of model {model.version} on this fleet is recorded"]
    return min((_missing_of(trial, model, pool) for trial in own), key=len, default=none)


def _missing_of(trial: TrialRun, model: FusionModel, pool: PoolPolicy) -> Sequence[str]:
    """What a trial lacks: it is of this very model, at no higher a limit, and bounds low enough."""
    told = f"the {_WORDS[trial.kind]} of model {model.version}"
    if trial.model_digest != model.digest:
        was, now = trial.model_digest[:_DIGITS_TOLD], model.digest[:_DIGITS_TOLD]
        return [f"{told} tried another file of that name ({was}, in use is {now}): try this one"]
    missing, tried, asked = [], trial.exclude_confidence, min(exclude_limits(pool))
    if tried > asked:
        missing.append(
            f"{told} counted exclusions from a confidence of {tried:g} on, pool {pool.name}"
            f" excludes from {asked:g}: try it at that"
        )
    bound = trial.bound_per_gpu_day
    if bound > TOLERATED_PER_GPU_DAY:
        missing.append(
            f"{told} bounds false exclusions at {bound:.2g} a GPU and day (95 %) over"
            f" {trial.gpu_days:.0f} GPU-days; at most {TOLERATED_PER_GPU_DAY:.2g} is wanted"
        )
    return missing


def _planes_missing(risk: Risk) -> list[str]:
    planes = supporting_planes(risk)
    if len(planes) >= WANTED_PLANES:
        return []
    named = ", ".join(plane.value for plane in planes) or "none"
    return [f"evidence from {WANTED_PLANES} planes is wanted; this risk rests on: {named}"]


@lru_cache(maxsize=256)
def poisson_upper(count: int) -> float:
    """Largest mean under which `count` or fewer events still have a chance of 5 %.

    Kept once found: the judge asks for each risk, and trials change once a minute at most.
    """
    low, high = float(count), 10.0 + 3.0 * count
    while high - low > _NEAR * high:
        middle = 0.5 * (low + high)
        if _poisson_at_most(count, middle) > 1.0 - _CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _poisson_at_most(count: int, mean: float) -> float:
    """The chance of `count` or fewer where `mean` is above `count`: terms only fall from there."""
    term = exp(count * log(mean) - mean - lgamma(count + 1))
    total, left = term, count
    while left and term > _NEAR * total:
        term *= left / mean
        total += term
        left -= 1
    return total
