"""Flags: a span of one incident for one entity, and the highest rung that was taken in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpuwarden_models.backtest.naming import Name, name_of
from gpuwarden_verdict.entities import SEVERITY_RANK, FaultClass, Rung, Severity
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.incidents.evidence import live_items
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase, PoolPolicy
from gpuwarden_verdict.policy.evaluate import EntityCase
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR, judge_case
from gpuwarden_wire.metrics import EntityKind

_MOST_REASONS = 6

QUIET_S = 3600.0
"""What speaks again after so long is another alarm, of the same incident too: a flag is fresh where
there was none before it for this time, and what stands already finds nothing new."""


@dataclass(slots=True)
class Flag:
    """What would have been shown of one incident, without QUIET_S of nothing in between.

    Attributes:
        name: The entity.
        fault_class: As it was labelled last.
        risk: Highest probability of needing action: the learnt one, else the rules' confidence.
        rung: Highest that the policy in act mode took, the learnt score's gate taken as open.
        rung_gated: The same with the gate as it stands.
        first_flagged_at: Epoch seconds from when it was suspect.
        first_excluded_at: Epoch seconds from when it was excluded, None never.
        last_flagged_at: Epoch seconds until when it was suspect.
        reasons: The evidence in words, what weighed most first.
        held_back: Guard that kept it from being excluded at the end, "" for none.
    """

    name: Name
    fault_class: FaultClass
    risk: float
    rung: Rung
    rung_gated: Rung
    first_flagged_at: float
    first_excluded_at: float | None
    last_flagged_at: float
    reasons: tuple[str, ...]
    held_back: str = ""


class FlagBook:
    """Watches the judge and keeps the flags of all incidents."""

    def __init__(self) -> None:
        self._flags: dict[str, Flag] = {}
        self._former: list[Flag] = []

    def watch(
        self, case: EntityCase, moves: Sequence[DecisionMove], pool: PoolPolicy, now: float
    ) -> None:
        """Look at one entity after it was judged.

        Args:
            case: What was judged.
            moves: What was decided.
            pool: Its rules.
            now: Epoch seconds.
        """
        if not case.incidents:
            return
        decisions = _after(case.decisions, moves)
        in_force = max((one.rung for one in decisions if covers(one)), default=Rung.OBSERVE)
        guards = (one.guard for one in decisions if one.phase is DecisionPhase.HELD_BACK)
        guard = next((one for one in guards if one), "")
        for incident in case.incidents:
            rung, sure = _asked(incident, case, pool, now)
            if rung >= Rung.SUSPECT:
                gated, _ = _asked(_without_score(incident), case, pool, now)
                taken = max(in_force, Rung.SUSPECT)
                learnt = case.risk.probability if case.risk is not None else 0.0
                risk = max(learnt, sure)
                held = guard if rung > taken else ""
                self._note(incident, min(rung, taken), min(gated, taken), risk, now, held)

    def flags(self) -> list[Flag]:
        """All flags, earliest first."""
        flags = [*self._former, *self._flags.values()]
        return sorted(flags, key=lambda one: (one.first_flagged_at, one.name.entity))

    def _note(
        self, incident: Incident, rung: Rung, gated: Rung, risk: float, now: float, held: str
    ) -> None:
        flag = self._flags.get(incident.id)
        if flag is not None and now - flag.last_flagged_at > QUIET_S:
            self._former.append(flag)
            flag = None
        if flag is None:
            flag = self._flags[incident.id] = Flag(
                name=name_of(incident.entity),
                fault_class=incident.fault_class,
                risk=risk,
                rung=rung,
                rung_gated=gated,
                first_flagged_at=now,
                first_excluded_at=None,
                last_flagged_at=now,
                reasons=(),
            )
        flag.fault_class = incident.fault_class
        flag.risk = max(flag.risk, risk)
        flag.rung, flag.rung_gated = max(flag.rung, rung), max(flag.rung_gated, gated)
        if rung >= Rung.EXCLUDE and flag.first_excluded_at is None:
            flag.first_excluded_at = now
        flag.last_flagged_at, flag.held_back = now, held
        flag.reasons = _reasons(incident, flag.reasons)


def _after(decisions: Iterable[Decision], moves: Iterable[DecisionMove]) -> list[Decision]:
    after = {one.id: one for one in decisions} | {m.decision.id: m.decision for m in moves}
    return list(after.values())


def _asked(
    incident: Incident, case: EntityCase, pool: PoolPolicy, now: float
) -> tuple[Rung, float]:
    """The rung that one incident asks for by itself, and how sure that is."""
    if incident.entity.kind is EntityKind.PLACE:
        return _of_place(incident, now)
    judged = judge_case(replace(case, incidents=(incident,)), pool, now)
    return (Rung.OBSERVE, 0.0) if judged is None else (judged.rung, judged.confidence)


def _of_place(incident: Incident, now: float) -> tuple[Rung, float]:
    """Nothing is ever decided about a place: it is shown, and its members are not blamed."""
    stands = [] if incident.phase is IncidentPhase.RESOLVED else live_items(incident.evidence, now)
    grave = SEVERITY_RANK[incident.severity] >= SEVERITY_RANK[Severity.WARNING]
    sure = max((item.score for item in stands), default=0.0)
    return (Rung.SUSPECT if stands and grave else Rung.OBSERVE), sure


def _without_score(incident: Incident) -> Incident:
    """The incident as it would be with the score's gate closed."""
    if all(item.detector != LEARNED_DETECTOR for item in incident.evidence):
        return incident
    return replace(incident, evidence=tuple(_gated(item) for item in incident.evidence))


def _gated(item: EvidenceItem) -> EvidenceItem:
    if item.detector != LEARNED_DETECTOR:
        return item
    return replace(item, severity=Severity.WARNING, max_rung=min(item.max_rung, Rung.SUSPECT))


def _reasons(incident: Incident, before: tuple[str, ...]) -> tuple[str, ...]:
    """Those of now first, one a detector; what was said before and holds no more stays behind."""
    said = [incident.why, *(item.sentence for item in incident.evidence)]
    kept = dict.fromkeys(one for one in said if one)
    return tuple(kept)[:_MOST_REASONS] or before
