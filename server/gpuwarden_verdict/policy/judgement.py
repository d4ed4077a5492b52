"""What the evidence asks for: the leading incident and the rung it supports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gpuwarden_verdict.entities import (
    SEVERITY_RANK,
    Contact,
    EntityState,
    FaultClass,
    Rung,
    Severity,
)
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.incidents.evidence import confidence_of, is_cause, live_items, weight_of
from gpuwarden_verdict.incidents.moves import holds_acquittal
from gpuwarden_verdict.policy.case import BY_RULE, BY_SCORE, EntityCase, Hold
from gpuwarden_verdict.policy.document import Mode, PoolPolicy

LEARNED_DETECTOR = "learned_score"

CATALOGUED = ("xid:", "sxid:")
"""Detectors of single codes, each with its entry in NVIDIA's catalogue."""

SUSPECT_CONFIDENCE = 0.3
"""Least confidence for advice."""
DRAIN_CONFIDENCE = 0.9
"""Rungs above exclude interrupt running work: they ask for more."""
PROBATION_CONFIDENCE = 0.5
"""On probation the first new symptom suffices, where a settled case would ask for more."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one incident asks for now.

    Attributes:
        incident: The incident.
        rung: What it asks for.
        confidence: 0..1.
        decided_by: BY_RULE or BY_SCORE.
        decisive: The evidence that weighs most among what may ask for so much.
        supported: Rungs from exclude on that the evidence supports, highest first.
        alone: Those of them that evidence which acts alone supports.
    """

    incident: Incident
    rung: Rung
    confidence: float
    decided_by: str
    decisive: EvidenceItem
    supported: tuple[Rung, ...] = ()
    alone: tuple[Rung, ...] = ()

    def highest(self, mode: Mode, pool: PoolPolicy) -> Rung:
        """The highest rung that the evidence supports and the pool leaves to a mode, else OBSERVE.

        A fault may be left to act mode at exclude, and to advice at drain.
        """
        of_class = self.incident.fault_class
        fitting = (rung for rung in self.supported if pool.mode_of(of_class, rung) is mode)
        return max(fitting, default=Rung.OBSERVE)

    def as_advice(self) -> Judgement:
        """The same where nothing may be excluded, whatever the evidence asks for."""
        return replace(self, rung=min(self.rung, Rung.SUSPECT), supported=())


def gated(incident: Incident, may_exclude: Callable[[str], bool]) -> Incident:
    """The incident with what a score said while its gate was open as it would say it now.

    Args:
        incident: It.
        may_exclude: Whether what the model of a version said may still exclude.
    """
    closed = [item for item in incident.evidence if _is_order(item) and not may_exclude(item.model)]
    if not closed:
        return incident
    told = (_as_advice(item) if item in closed else item for item in incident.evidence)
    return replace(incident, evidence=tuple(told))


def _is_order(item: EvidenceItem) -> bool:
    return item.detector == LEARNED_DETECTOR and item.max_rung > Rung.SUSPECT


def _as_advice(item: EvidenceItem) -> EvidenceItem:
    return replace(item, max_rung=Rung.SUSPECT, severity=Severity.WARNING)


def judge_case(case: EntityCase, pool: PoolPolicy, now: float) -> Judgement | None:
    """The gravest that any of the entity's incidents asks for, None where none asks.

    What may be acted on goes before what may only be advised, and that before what is observed: a
    class that is only observed must not hide another that acts.
    """
    judged = [
        judgement
        for incident in case.incidents
        if (judgement := _judge_incident(incident, case, pool, now)) is not None
    ]
    return max(judged, key=lambda one: _weight(one, pool), default=None)


def free_items(
    items: Sequence[EvidenceItem], incident: Incident, case: EntityCase, now: float
) -> list[EvidenceItem]:
    """What no revoke speaks for: all, or what is told of devices that no person has judged.

    A revoke holds against the same class, no higher severity, and on a node the same PCI
    addresses. Once its incident has ended (another boot, a passed check), an address decides anew.
    """
    if _holds_itself(incident, now):
        return [item for item in items if not set(item.places) <= set(incident.acquitted_places)]
    if _held_by_former(incident, case, now):
        return [item for item in items if item.places]
    return list(items)


def _holds_itself(incident: Incident, now: float) -> bool:
    of_class = incident.acquitted_class in (None, incident.fault_class)
    severity = incident.acquitted_severity or incident.severity
    return holds_acquittal(incident, now) and of_class and _no_graver(incident, severity)


def _held_by_former(incident: Incident, case: EntityCase, now: float) -> bool:
    return any(
        acquittal.entity in (incident.entity, case.entity)
        and acquittal.fault_class is incident.fault_class
        and acquittal.until > now
        and _no_graver(incident, acquittal.severity)
        for acquittal in case.acquittals
    )


def _no_graver(incident: Incident, severity: Severity) -> bool:
    return SEVERITY_RANK[incident.severity] <= SEVERITY_RANK[severity]


def _judge_incident(
    incident: Incident, case: EntityCase, pool: PoolPolicy, now: float
) -> Judgement | None:
    live = free_items(live_items(incident.evidence, now), incident, case, now)
    settled = [item for item in live if _may_speak(item, case, pool, now)]
    if not settled or incident.phase is IncidentPhase.RESOLVED:
        return None
    if incident.id in case.storms:
        return None
    rungs = _rungs(incident, settled, case, pool, now)
    if not rungs:
        return None
    rung = rungs[0]
    confidence = confidence_of(settled, rung)
    decisive = max(settled, key=lambda item: (item.max_rung >= rung, *weight_of(item)))
    return Judgement(
        incident=incident,
        rung=rung,
        confidence=confidence,
        decided_by=_decided_by(incident, settled, rung, case, pool, now),
        decisive=decisive,
        supported=tuple(one for one in rungs if one >= Rung.EXCLUDE),
        alone=_rungs(incident, [i for i in settled if i.acts_alone], case, pool, now),
    )


def _may_speak(item: EvidenceItem, case: EntityCase, pool: PoolPolicy, now: float) -> bool:
    """Whether evidence need not wait: for what may corroborate or acquit it, or for what follows.

    While more events of the node follow, only codes of the catalogue speak. A reading, a check or a
    lost device may be taken back among them.
    """
    if case.hold is not Hold.NONE:
        return item.acts_alone and item.detector.startswith(CATALOGUED)
    least_s = pool.settle_s
    if item.detector == LEARNED_DETECTOR:
        least_s = max(least_s, pool.score_settle_s)
    return item.acts_alone or now - item.received_at >= least_s


def _rungs(
    incident: Incident,
    items: Sequence[EvidenceItem],
    case: EntityCase,
    pool: PoolPolicy,
    now: float,
) -> tuple[Rung, ...]:
    """Rungs that the evidence supports, within what the incident and the contact allow.

    Highest first.
    """
    if not items:
        return ()
    ceiling = _ceiling(incident, items, case)
    return tuple(
        rung
        for rung, least in _ladder(incident.fault_class, case, pool)
        if rung <= ceiling
        and confidence_of(_standing_long(items, incident, rung, pool, now), rung) >= least
    )


def _standing_long(
    items: Sequence[EvidenceItem], incident: Incident, rung: Rung, pool: PoolPolicy, now: float
) -> Sequence[EvidenceItem]:
    """Evidence that has stood for as long as the policy wants it to for a rung."""
    persistence_s = 0.0
    if rung >= Rung.EXCLUDE:
        persistence_s = pool.persistence_of(incident.fault_class, rung)
    if persistence_s <= 0.0:
        return items
    return [item for item in items if now - item.received_at >= persistence_s]


def _ladder(
    fault_class: FaultClass, case: EntityCase, pool: PoolPolicy
) -> tuple[tuple[Rung, float], ...]:
    def least(rung: Rung, otherwise: float) -> float:
        said = pool.confidence_of(fault_class, rung)
        return otherwise if said is None else said

    exclude = least(Rung.EXCLUDE, pool.exclude_confidence)
    if case.state is EntityState.PROBATION:
        exclude = min(exclude, PROBATION_CONFIDENCE)
    above = max(exclude, DRAIN_CONFIDENCE)
    drain = max(exclude, least(Rung.DRAIN, above))
    return (
        (Rung.EVICT, max(drain, least(Rung.EVICT, above))),
        (Rung.DRAIN, drain),
        (Rung.EXCLUDE, exclude),
        (Rung.SUSPECT, min(SUSPECT_CONFIDENCE, exclude)),
    )


def _ceiling(incident: Incident, items: Sequence[EvidenceItem], case: EntityCase) -> Rung:
    """What may be done at most, however sure we are.

    A program's fault, or an operator's doing, is never a reason to exclude; what we do not hear of
    is not judged anew save on evidence that acts alone; an open parent is the cause, and acquits
    its members.
    """
    alone = any(item.acts_alone for item in items)
    grave = any(SEVERITY_RANK[i.severity] >= SEVERITY_RANK[Severity.ERROR] for i in items)
    if incident.parent_id is not None:
        return Rung.OBSERVE
    if not grave:
        return Rung.SUSPECT
    if incident.fault_class in (FaultClass.APPLICATION, FaultClass.OPERATOR):
        return Rung.SUSPECT
    if all(item.application_possible for item in items):
        return Rung.SUSPECT
    if not alone and (case.contact is not Contact.LIVE or not _names_a_part(incident, items)):
        return Rung.SUSPECT
    if incident.phase is IncidentPhase.MITIGATED:
        return Rung.SUSPECT
    return max(item.max_rung for item in items)


def _names_a_part(incident: Incident, items: Sequence[EvidenceItem]) -> bool:
    """An unknown class never acts by itself, unless an active check of the user's said so."""
    checked = any(item.detector.startswith("check_failed") for item in items)
    return is_cause(incident.fault_class) or checked


def _decided_by(
    incident: Incident,
    items: Sequence[EvidenceItem],
    rung: Rung,
    case: EntityCase,
    pool: PoolPolicy,
    now: float,
) -> str:
    """The rules where they ask for so much without the score, else the score."""
    rules = [item for item in items if item.detector != LEARNED_DETECTOR]
    if len(rules) == len(items):
        return BY_RULE
    alone = max(_rungs(incident, rules, case, pool, now), default=Rung.OBSERVE)
    return BY_RULE if alone >= rung else BY_SCORE


def _weight(judgement: Judgement, pool: PoolPolicy) -> tuple[int, int, int, float, int, str]:
    severity = SEVERITY_RANK[judgement.incident.severity]
    return (
        judgement.highest(Mode.ACT, pool),
        judgement.highest(Mode.ADVISE, pool),
        *(judgement.rung, judgement.confidence, severity, judgement.incident.id),
    )
