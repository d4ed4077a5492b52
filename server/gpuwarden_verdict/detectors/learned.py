"""The learnt score as a signal: one voice among others, at most suspect unless the gate is open."""

from __future__ import annotations

import math

from gpuwarden_verdict.entities import (
    EntityRef,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.feature_words import amount_of, said_of
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_verdict.signals import (
    Contribution,
    Persistence,
    Plane,
    Recovery,
    RecoveryKind,
    Risk,
    Signal,
)

VERSION = 2
CLEAR_SHARE = 0.6
"""Below this share of the operating point the score speaks for recovery; between the two nothing
is said."""
CLEAR_NOVELTY = 0.8
"""Below this share of its limit nothing is strange any more."""
_TTL_S = 3600.0
_NAMED_TERMS = 3
_UNKNOWN_SCORE = 0.3


def detect_risk(risk: Risk, now: float, *, may_exclude: bool) -> Signal | None:
    """The learnt score as a signal.

    None below the model's operating point, unless nothing that the model learnt fits: that is an
    unknown fault, and suspect at most. The rule floor is taken out first: rules speak for
    themselves and must not be counted twice.

    Args:
        risk: Fusion's statement.
        now: Epoch seconds.
        may_exclude: Policy lets the score act alone and the gate is open; else SUSPECT at most.
    """
    probability = learned_probability(risk)
    if math.isnan(probability):  # no opinion
        return None
    if probability >= risk.operating_point:
        return _likely(risk, probability, now, may_exclude=may_exclude)
    return _unknown(risk, now) if risk.novelty >= 1.0 else None


def _likely(risk: Risk, probability: float, now: float, *, may_exclude: bool) -> Signal:
    terms = _leading_terms(risk)
    planes = [term.plane for term in terms if term.plane is not None]
    return Signal(
        entity=risk.entity,
        fault_class=risk.fault_class,
        score=probability,
        severity=Severity.ERROR if may_exclude else Severity.WARNING,
        plane=planes[0] if planes else Plane.PEERS,
        sentence=f"learnt risk {probability:.0%} of needing action: {_in_words(terms)}",
        detector=LEARNED_DETECTOR,
        detector_version=VERSION,
        observed_at=now,
        expires_at=now + _TTL_S,
        persistence=Persistence.LEVEL,
        action=RecommendedAction.INVESTIGATE,
        numbers={"probability": probability},
        thresholds={"probability": risk.operating_point},
        max_rung=Rung.EXCLUDE if may_exclude else Rung.SUSPECT,
        source="score",
        model=risk.model_version,
    )


def _unknown(risk: Risk, now: float) -> Signal:
    terms = {term.name: term for term in risk.contributions}
    strange = [terms[name] for name in risk.strange if name in terms]
    planes = [term.plane for term in strange if term.plane is not None]
    said = ", ".join(_reading(term) for term in strange)
    return Signal(
        entity=risk.entity,
        fault_class=FaultClass.UNKNOWN,
        score=_UNKNOWN_SCORE,
        severity=Severity.WARNING,
        plane=planes[0] if planes else Plane.PEERS,
        sentence=f"unknown fault: unlike anything the score learnt from: {said}",
        detector=LEARNED_DETECTOR,
        detector_version=VERSION,
        observed_at=now,
        expires_at=now + _TTL_S,
        persistence=Persistence.LEVEL,
        action=RecommendedAction.INVESTIGATE,
        numbers={"novelty": risk.novelty},
        thresholds={"novelty": 1.0},
        max_rung=Rung.SUSPECT,
        source="score",
        model=risk.model_version,
    )


def detect_risk_clear(risk: Risk, now: float) -> Recovery | None:
    """Recovery once the learnt score is well below what it says suspect from; None else."""
    probability = learned_probability(risk)
    if not probability < CLEAR_SHARE * risk.operating_point or risk.novelty >= CLEAR_NOVELTY:
        return None
    return Recovery(
        entity=risk.entity,
        kind=RecoveryKind.READING_CLEAR,
        at=now,
        reason=f"learnt risk is down to {probability:.0%}",
        detectors=frozenset({LEARNED_DETECTOR}),
    )


def detect_model_gone(entity: EntityRef, now: float) -> Recovery:
    """Recovery of what a model said that judges no more: nobody else ever takes it back."""
    return Recovery(
        entity=entity,
        kind=RecoveryKind.READING_CLEAR,
        at=now,
        reason="the model that said so judges no more",
        detectors=frozenset({LEARNED_DETECTOR}),
    )


def learned_probability(risk: Risk) -> float:
    """The risk's probability without its rule floor."""
    floors = [term.log_odds for term in risk.contributions if term.name == "rule_floor"]
    if not floors or not any(floors):
        return risk.probability
    log_odds = math.fsum(term.log_odds for term in risk.contributions if term.name != "rule_floor")
    return 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, log_odds))))


def _leading_terms(risk: Risk) -> list[Contribution]:
    raising = [term for term in risk.contributions if term.plane is not None and term.log_odds > 0]
    return sorted(raising, key=lambda term: -term.log_odds)[:_NAMED_TERMS]


def _reading(term: Contribution) -> str:
    return f"{said_of(term.name)} {amount_of(term.name, term.value)}"


def _in_words(terms: list[Contribution]) -> str:
    said = [f"{_reading(term)} ({term.log_odds:+.2f})" for term in terms]
    return ", ".join(said) or "no single reading stands out"
