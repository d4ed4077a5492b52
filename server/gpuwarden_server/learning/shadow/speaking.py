"""Whom a score would exclude: as the judge would find it if the score were let. Pure.

Like the judge's, the score's evidence is a level: it keeps its strength until the score says
something else or clears, adds up with whatever else stands, and meets the limit of the entity's
state. Where the two could differ, this one says more: a trial must not miss what would be done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from gpuwarden_server.learning.shadow.domain import Opinion
from gpuwarden_verdict.detectors.learned import detect_risk_clear, learned_probability
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung
from gpuwarden_verdict.fusion.gate import WANTED_PLANES, supporting_planes
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import confidence_of, live_items
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR, PROBATION_CONFIDENCE
from gpuwarden_verdict.signals import Risk


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the judge holds of an entity beside the score.

    Attributes:
        state: Of what a decision about it acts on.
        incidents: Open ones.
    """

    state: EntityState | None = EntityState.HEALTHY
    incidents: Sequence[Incident] = ()


@dataclass(slots=True)
class _Voice:
    """What the score says of one entity, as the evidence of an incident would keep it."""

    since: float
    risk: Risk
    asked_at: float | None = None


@dataclass(slots=True)
class ScoreVoices:
    """What one model says of a fleet; one thread uses it."""

    _voices: dict[str, _Voice] = field(default_factory=dict)

    def entities(self) -> list[EntityRef]:
        """Of whom it says something: they must be scored again, to know when that is over."""
        return [voice.risk.entity for voice in self._voices.values()]

    def hear(
        self,
        risks: Iterable[Risk],
        around: Callable[[EntityRef], Surroundings],
        pool_of: Callable[[str], PoolPolicy],
        now: float,
    ) -> list[Opinion]:
        """Take what the model says now; whom it would exclude.

        Args:
            risks: Of the model's kind.
            around: What else is known of an entity.
            pool_of: Rules of a node.
            now: Epoch seconds.
        """
        for risk in risks:
            self._take(risk, now)
        asking = []
        for key in list(self._voices):
            voice = self._voices[key]
            pool = pool_of(voice.risk.entity.node_id)
            opinion = _opinion(voice, around(voice.risk.entity), pool, now)
            if opinion is not None:
                asking.append(opinion)
        return asking

    def _take(self, risk: Risk, now: float) -> None:
        key = risk.entity.key
        if learned_probability(risk) >= risk.operating_point:
            voice = self._voices.setdefault(key, _Voice(now, risk))
            voice.risk = risk
        elif detect_risk_clear(risk, now) is not None:
            self._voices.pop(key, None)


def _opinion(voice: _Voice, around: Surroundings, pool: PoolPolicy, now: float) -> Opinion | None:
    """What it asks for; once it would have decided, it does so until the score clears."""
    decided = voice.asked_at is not None and now - voice.since >= pool.settle_s
    if not decided:
        if not would_exclude(voice.risk, around, pool, now):
            voice.asked_at = None
            return None
        voice.asked_at = now if voice.asked_at is None else voice.asked_at
    asked_at = now if voice.asked_at is None else voice.asked_at
    risk = voice.risk
    return Opinion(
        risk.entity,
        learned_probability(risk),
        risk.fault_class.value,
        tuple(sorted(plane.value for plane in supporting_planes(risk))),
        max(0.0, voice.since + pool.settle_s - asked_at),
    )


def would_exclude(risk: Risk, around: Surroundings, pool: PoolPolicy, now: float) -> bool:
    """Whether the score, with whatever else stands, would exclude, were its gate open.

    Args:
        risk: At or above the operating point when it was said.
        around: What else is known of the entity.
        pool: Its rules.
        now: Epoch seconds.
    """
    limit = pool.exclude_confidence
    if around.state is EntityState.PROBATION:
        limit = min(limit, PROBATION_CONFIDENCE)
    probability = learned_probability(risk)
    speaks = probability >= risk.operating_point
    together = 1.0 - (1.0 - probability) * (1.0 - _beside(around.incidents, now))
    return speaks and together >= limit and len(supporting_planes(risk)) >= WANTED_PLANES


def _beside(incidents: Collection[Incident], now: float) -> float:
    """How sure all other live evidence makes us, whatever it alone might ask for."""
    sure = [
        confidence_of(_others(live_items(one.evidence, now)), Rung.OBSERVE) for one in incidents
    ]
    return 1.0 - math.prod(1.0 - one for one in sure)


def _others(items: Iterable[EvidenceItem]) -> list[EvidenceItem]:
    return [item for item in items if item.detector != LEARNED_DETECTOR]
