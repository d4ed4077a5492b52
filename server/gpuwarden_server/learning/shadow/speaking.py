"""Whom a score would exclude: by the judge's own arithmetic, as if the score were let. Pure.

The score's evidence joins what else is open of the entity as the judge's would, and the very same
judgement is asked. Where the two could differ, this one says more: a trial must not miss what would
be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpuwarden_server.learning.shadow.domain import Opinion
from gpuwarden_verdict.detectors.learned import (
    detect_risk,
    detect_risk_clear,
    learned_probability,
)
from gpuwarden_verdict.entities import EntityRef, EntityState, Rung
from gpuwarden_verdict.fusion.gate import WANTED_PLANES, exclude_limits, supporting_planes
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.incidents.evidence import join_signal, new_item
from gpuwarden_verdict.incidents.lifecycle import advance
from gpuwarden_verdict.policy.case import BY_SCORE, EntityCase, decision_target
from gpuwarden_verdict.policy.document import PoolPolicy
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR, judge_case
from gpuwarden_verdict.signals import Risk, Signal


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the judge holds of an entity beside the score.

    Attributes:
        state: Of what a decision about it acts on.
        incidents: Open ones of the same.
    """

    state: EntityState | None = EntityState.HEALTHY
    incidents: Sequence[Incident] = ()


@dataclass(slots=True)
class _Voice:
    """What the score says of one entity: its latest signal, and the evidence that it amounts to."""

    risk: Risk
    signal: Signal
    item: EvidenceItem
    decided: bool = False


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

        Once it would have excluded somebody, it does so until the score clears.

        Args:
            risks: Of the model's kind.
            around: What else is known of an entity.
            pool_of: Rules of a node.
            now: Epoch seconds.
        """
        for risk in risks:
            self._take(risk, now)
        asking = []
        for voice in self._voices.values():
            ref = voice.risk.entity
            if not voice.decided:
                voice.decided = _would_exclude(voice, around(ref), pool_of(ref.node_id), now)
            if voice.decided:
                asking.append(_opinion(voice.risk))
        return asking

    def _take(self, risk: Risk, now: float) -> None:
        key = risk.entity.key
        allowed = len(supporting_planes(risk)) >= WANTED_PLANES
        signal = detect_risk(risk, now, may_exclude=allowed)
        if signal is None:
            if detect_risk_clear(risk, now) is not None:
                self._voices.pop(key, None)
            return
        voice = self._voices.get(key)
        if voice is None:
            self._voices[key] = _Voice(risk, signal, new_item(signal, now))
            return
        voice.risk, voice.signal = risk, signal
        voice.item = join_signal(voice.item, signal, now).item


def _opinion(risk: Risk) -> Opinion:
    planes = tuple(sorted(plane.value for plane in supporting_planes(risk)))
    return Opinion(risk.entity, learned_probability(risk), risk.fault_class.value, planes)


def _would_exclude(voice: _Voice, around: Surroundings, pool: PoolPolicy, now: float) -> bool:
    """Whether the judge would, on the incident that the score's evidence is part of.

    What rules would exclude without it is no doing of the score's.
    """
    if voice.item.max_rung < Rung.EXCLUDE:
        return False
    entity = voice.risk.entity
    moves = advance(around.incidents, [voice.signal], (), now, lambda: "inc-shadow")
    opened = {one.id: one for one in around.incidents}
    opened |= {move.incident.id: move.incident for move in moves}
    case = EntityCase(
        decision_target(entity),
        tuple(_with_item(one, voice.item) for one in opened.values() if _holds_score(one, entity)),
        state=around.state or EntityState.HEALTHY,
    )
    judged = judge_case(case, _readiest(pool), now)
    return judged is not None and judged.rung >= Rung.EXCLUDE and judged.decided_by == BY_SCORE


def _readiest(pool: PoolPolicy) -> PoolPolicy:
    """The pool with one limit for all classes, the lowest: a trial speaks for one."""
    if not pool.rules:
        return pool
    return replace(pool, exclude_confidence=min(exclude_limits(pool)), rules=())


def _holds_score(incident: Incident, entity: EntityRef) -> bool:
    spoken = any(item.detector == LEARNED_DETECTOR for item in incident.evidence)
    return spoken and incident.entity == entity


def _with_item(incident: Incident, own: EvidenceItem) -> Incident:
    """The incident with the score's evidence as this model has said it.

    It may hold that of the model in use, which spoke at other times.
    """
    evidence = (own if item.detector == own.detector else item for item in incident.evidence)
    return replace(incident, evidence=tuple(evidence))
