"""A risk told to people: what speaks, plane by plane, and what the score were without it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.feature_words import amount_of, said_of
from gpuwarden_verdict.features import FEATURE_COLUMNS
from gpuwarden_verdict.fusion.artifact import FusionModel
from gpuwarden_verdict.fusion.explain import contributions
from gpuwarden_verdict.fusion.fuse import INTERCEPT, RULE_FLOOR, VETO
from gpuwarden_verdict.fusion.predict import log_odds, logit, probability
from gpuwarden_verdict.signals import Contribution, Plane, Risk

F64 = npt.NDArray[np.float64]

CALIBRATION = "calibration"

MOST_LEADING = 5
"""So many features are told, those that move the score most."""

MOST_WITHOUT = 3
"""Of so many that raise it, the score without them is told."""

_WORTH_A_LINE = 0.05
"""Log-odds that a feature adds at least, for the score without it to be told."""

_SLIGHT = 0.005  # log-odds that two digits show as nothing


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the sum.

    Attributes:
        name: "intercept", "calibration", a plane, "veto" or "rule_floor".
        log_odds: What it adds; all lines sum to the score's log-odds.
        sentence: What it is.
    """

    name: str
    log_odds: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Leading:
    """A feature that moves the score much.

    Attributes:
        feature: Its name.
        plane: Its kind of evidence.
        value: What was read, NaN where missing.
        log_odds: What it adds; it is part of its plane's line.
        sentence: The same in words.
        said: What the feature is.
    """

    feature: str
    plane: Plane
    value: float
    log_odds: float
    sentence: str
    said: str


@dataclass(frozen=True, slots=True)
class Without:
    """What the score were if one feature that raises it were as on healthy entities.

    Attributes:
        feature: Its name.
        healthy: The value put in its place, the median of the healthy rows that the model learnt
            from; NaN where the model holds none, or one no better: then the feature was left out.
        probability: What the model says then; a veto and a rule floor hold as they did.
        sentence: The same in words.
    """

    feature: str
    healthy: float
    probability: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A risk, explained.

    Attributes:
        probability: The risk's.
        log_odds: Of that probability; `lines` sum to it.
        lines: Intercept, calibration, planes (those that move it most first), veto, rule floor.
        leading: Features that move the score most, the most first.
        without: By the features that raise it most.
    """

    probability: float
    log_odds: float
    lines: tuple[Line, ...]
    leading: tuple[Leading, ...]
    without: tuple[Without, ...]


def explain_risk(model: FusionModel, risk: Risk) -> Explanation:
    """Explain a risk by the model that made it.

    Args:
        model: The model.
        risk: A risk of it.

    Raises:
        ValueError: Another model made it.
    """
    if (risk.model_version, risk.schema_hash) != (model.version, model.schema_hash):
        raise ValueError(
            f"the risk is by model {risk.model_version} {risk.schema_hash},"
            f" not by {model.version} {model.schema_hash}"
        )
    features = [one for one in risk.contributions if one.plane is not None]
    lines = _lines(model, risk.contributions)
    return Explanation(
        probability=risk.probability,
        log_odds=math.fsum(line.log_odds for line in lines),
        lines=lines,
        leading=_leading(model, features),
        without=_without(model, risk, features),
    )


def _lines(model: FusionModel, terms: Sequence[Contribution]) -> tuple[Line, ...]:
    planes: dict[Plane, list[Contribution]] = defaultdict(list)
    for term in terms:
        if term.plane is not None:
            planes[term.plane].append(term)
    whole = math.fsum(term.log_odds for term in terms if term.name == INTERCEPT)
    told = [
        Line(INTERCEPT, whole - model.offset, "what the model expects before it sees anything"),
        Line(
            CALIBRATION,
            model.offset,
            f"calibration's offset; its scale, {model.slope:.3g}, is in every other line",
        ),
    ]
    summed = [
        Line(plane.value, math.fsum(one.log_odds for one in own), _plane_sentence(plane, own))
        for plane, own in planes.items()
    ]
    told += sorted(summed, key=lambda line: -abs(line.log_odds))
    told += [Line(VETO, term.log_odds, _VETO_SAID) for term in terms if term.name == VETO]
    told += [
        Line(RULE_FLOOR, term.log_odds, f"a rule that acts alone is {term.value:.0%} sure")
        for term in terms
        if term.name == RULE_FLOOR
    ]
    return tuple(told)


_VETO_SAID = "several GPUs of the node failed together: events say nothing against one of them"


def _plane_sentence(plane: Plane, own: Sequence[Contribution]) -> str:
    most = max(own, key=lambda one: abs(one.log_odds))
    if abs(most.log_odds) < _SLIGHT:
        return f"{plane.value}: nothing of note"
    return f"{plane.value}: mostly {said_of(most.name)}, {amount_of(most.name, most.value)}"


def _leading(model: FusionModel, features: Sequence[Contribution]) -> tuple[Leading, ...]:
    said = {one.feature.name: one.make.said for one in FEATURE_COLUMNS[model.kind]}
    most = sorted(features, key=lambda one: -abs(one.log_odds))[:MOST_LEADING]
    return tuple(
        Leading(
            one.name,
            one.plane,
            one.value,
            one.log_odds,
            f"{said_of(one.name)}: {amount_of(one.name, one.value)},"
            f" {'raises' if one.log_odds > 0 else 'lowers'} the log-odds by"
            f" {abs(one.log_odds):.2f}",
            said[one.name].replace("`", ""),
        )
        for one in most
        if one.plane is not None and abs(one.log_odds) >= _SLIGHT
    )


def _without(
    model: FusionModel, risk: Risk, features: Sequence[Contribution]
) -> tuple[Without, ...]:
    row = np.array([one.value for one in features], np.float32)
    raising = [
        place
        for place in sorted(range(row.size), key=lambda place: -features[place].log_odds)
        if features[place].log_odds >= _WORTH_A_LINE and not np.isnan(row[place])
    ][:MOST_WITHOUT]
    rows = np.repeat(row[None, :], len(raising), axis=0)
    for number, place in enumerate(raising):
        rows[number, place] = _healthy(model, place, float(row[place]))
    odds = _odds(model, risk, rows)
    floor = max(
        (logit(one.value) for one in risk.contributions if one.name == RULE_FLOOR),
        default=-math.inf,
    )
    return tuple(
        _one_without(
            features[place].name,
            float(rows[number, place]),
            float(probability(odds[number])),
            held=bool(odds[number] <= floor),
        )
        for number, place in enumerate(raising)
    )


def _healthy(model: FusionModel, place: int, value: float) -> float:
    """Median over healthy training rows, NaN where it is not known or is on the wrong side."""
    deciles = model.quantiles[place] if place < len(model.quantiles) else ()
    if not deciles:
        return math.nan
    middle = float(np.float32(deciles[len(deciles) // 2]))
    sign = model.features.features[place].monotone
    better = middle != value if sign == 0 else sign * (value - middle) > 0
    return middle if better else math.nan


def _odds(model: FusionModel, risk: Risk, rows: npt.NDArray[np.float32]) -> F64:
    """Log-odds of rows, shape (K,), under the veto and above the floor of a risk."""
    odds = log_odds(model, rows)
    special = {one.name: one.value for one in risk.contributions if one.plane is None}
    if VETO in special:
        events = np.array([one.plane is Plane.EVENTS for one in model.features.features])
        shares, _ = contributions(model, rows)
        odds = odds - np.maximum(shares[:, events], 0.0).sum(axis=1)
    if RULE_FLOOR in special:
        odds = np.maximum(odds, logit(special[RULE_FLOOR]))
    return odds


def _one_without(name: str, healthy: float, chance: float, *, held: bool) -> Without:
    told = f"without {said_of(name)}:"
    if not math.isnan(healthy):
        told = f"with {said_of(name)} at the healthy {amount_of(name, healthy)}:"
    why = ", where a rule that acts alone holds it" if held else ""
    return Without(name, healthy, chance, f"{told} {_chance(chance)}{why}")


def _chance(chance: float) -> str:
    return f"{chance:.2f}" if chance >= 0.1 else f"{chance:.1g}"
