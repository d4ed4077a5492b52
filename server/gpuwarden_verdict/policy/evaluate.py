"""From incidents to decisions, within the user's limits. Pure: values in, moves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import assert_never

from gpuwarden_verdict.entities import EntityState, FaultClass, Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import EvidenceItem, IncidentPhase
from gpuwarden_verdict.incidents.evidence import (
    Standing,
    first_sign,
    standing_of,
    statement_of,
)
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.case import EntityCase, Hold, decision_target
from gpuwarden_verdict.policy.document import (
    Decision,
    DecisionMove,
    DecisionPhase,
    Mode,
    Pin,
    PinKind,
    PoolPolicy,
)
from gpuwarden_verdict.policy.guards import (
    BY_PIN,
    Breaker,
    Counted,
    Guard,
    PoolLoad,
    Seat,
    cap_nodes,
    guard_of,
    load_after,
    pool_loads,
)
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR, Judgement, judge_case
from gpuwarden_verdict.policy.words import (
    DecisionError,
    approvable,
    approve,
    hold,
    let_go,
    revoke,
)

__all__ = [
    "Breaker",
    "Counted",
    "DecisionError",
    "EntityCase",
    "Hold",
    "PoolLoad",
    "Seat",
    "approvable",
    "approve",
    "awaits_check",
    "cap_nodes",
    "decide",
    "decision_target",
    "hold",
    "let_go",
    "load_after",
    "pool_loads",
    "revoke",
]

_LIVE = frozenset({DecisionPhase.PROPOSED, DecisionPhase.IN_FORCE, DecisionPhase.HELD_BACK})
_NOT_CHECKED = frozenset({EntityState.EXCLUDED, EntityState.DRAINING, EntityState.IN_REPAIR})
_CONFIDENCE_STEP = 0.05  # smaller changes are not worth a stored fact


@dataclass(frozen=True, slots=True)
class _Step:
    """How far a judgement leads.

    Attributes:
        rung: That is decided.
        mode: The policy's of that class and rung.
        advised: Higher one that waits for a person, OBSERVE for none.
    """

    rung: Rung
    mode: Mode
    advised: Rung = Rung.OBSERVE


@dataclass(frozen=True, slots=True)
class _Setting:
    """What stays the same while one entity is decided about."""

    case: EntityCase
    pool: PoolPolicy
    policy_version: str
    load: PoolLoad
    now: float
    new_id: Callable[[], str]


def decide(
    case: EntityCase,
    pool: PoolPolicy,
    policy_version: str,
    load: PoolLoad,
    now: float,
    new_id: Callable[[], str],
) -> list[DecisionMove]:
    """Moves of one entity's decisions; fold them into the load (`load_after`) before the next.

    At most one decision of gpuwarden's and one of a pin live per entity. Exclusions end when no
    incident asks for them any more (LIFTED: evidence of recovery), at their expiry when their
    evidence was not renewed, or by a person; no guard, mode or breaker ever holds an end back.
    While an entity is in repair nothing ends: a passed check comes first.

    Args:
        case: The entity and its evidence.
        pool: Its pool's rules.
        policy_version: Version of the document they are from.
        load: What is out in the pool.
        now: Server's UTC, epoch seconds.
        new_id: Gives "dec-" ids.
    """
    setting = _Setting(case, pool, policy_version, load, now, new_id)
    pins = [pin for pin in case.pins if pin.holds(now)]
    return [*_decide_pins(setting, pins), *_decide_evidence(setting, pins)]


def _decide_pins(setting: _Setting, pins: list[Pin]) -> list[DecisionMove]:
    """Pins are exclusions of their own: any mode, no cap, ended only with the pin.

    One that asks for a check stays until the entity has passed one, also once its time is over.
    """
    wanted = next((pin for pin in pins if pin.kind is PinKind.EXCLUDE), None)
    standing = [d for d in setting.case.decisions if d.decided_by == BY_PIN and d.phase in _LIVE]
    if wanted is None and awaits_check(setting.case, setting.now):
        return []
    if wanted is None:
        return [_ended(d, DecisionPhase.LIFTED, "the pin is gone", setting.now) for d in standing]
    told = "planned leave" if wanted.leave else "pinned"
    reasons = (f"{told} by {wanted.by}: {wanted.reason}",)
    if standing:
        new = replace(standing[0], reasons=reasons, expires_at=wanted.expires_at)
        move = DecisionMove(new, standing[0].phase, wanted.reason, wanted.by, setting.now)
        return [] if new == standing[0] else [move]
    decision = Decision(
        id=setting.new_id(),
        entity=setting.case.entity,
        rung=Rung.EXCLUDE,
        phase=DecisionPhase.IN_FORCE,
        mode=setting.pool.mode,
        fault_class=FaultClass.OPERATOR,
        reasons=reasons,
        confidence=1.0,
        decided_by=BY_PIN,
        incident_id=None,
        policy_version=setting.policy_version,
        model_version="",
        decided_at=setting.now,
        expires_at=wanted.expires_at,
    )
    return [DecisionMove(decision, None, wanted.reason, wanted.by, setting.now)]


def awaits_check(case: EntityCase, now: float) -> bool:
    """Whether the entity was out by a pin whose time is over, and returns over a check only."""
    over = any(pin.check and pin.is_over(now) for pin in case.pins)
    pinned = any(d.decided_by == BY_PIN and covers(d) for d in case.decisions)
    return over and pinned and case.state in _NOT_CHECKED


def _decide_evidence(setting: _Setting, pins: list[Pin]) -> list[DecisionMove]:
    case = setting.case
    match case.hold:
        case Hold.ALL:
            return []
        case Hold.CORROBORATED:
            return _decide_held(setting, pins)
        case Hold.NONE:
            return _decide_all(setting, pins)
        case _:
            assert_never(case.hold)


def _decide_held(setting: _Setting, pins: list[Pin]) -> list[DecisionMove]:
    """A new exclusion, or a higher one, on what decides alone; nothing else moves before its time.

    A lost GPU is lost whatever follows: 20,000 lines of the same fault must not keep it in use.
    """
    moves = _decide_all(setting, pins)
    present = max((d.rung for d in setting.case.decisions if covers(d)), default=Rung.SUSPECT)
    raised = (m for m in moves if m.decision.phase in _LIVE and m.decision.rung > present)
    return moves if any(raised) else []


def _decide_all(setting: _Setting, pins: list[Pin]) -> list[DecisionMove]:
    case = setting.case
    standing = [d for d in case.decisions if d.decided_by != BY_PIN and d.phase in _LIVE]
    present = max(standing, key=lambda d: (covers(d), d.rung), default=None)
    extra = [d for d in standing if d is not present]
    tidied = [_ended(d, DecisionPhase.LIFTED, "one decision an entity", setting.now) for d in extra]
    judgement = judge_case(case, setting.pool, setting.now)
    allowed = next((pin for pin in pins if pin.kind is PinKind.ALLOW), None)
    if judgement is not None and allowed is not None:
        judgement = judgement.as_advice()
    if present is not None and covers(present) and allowed is not None:
        why = f"pinned as allowed by {allowed.by}: {allowed.reason}"
        return [*tidied, _ended(present, DecisionPhase.LIFTED, why, setting.now)]
    if present is None:
        return [*tidied, *_begin(setting, judgement)]
    if covers(present):
        return [*tidied, *_review_exclusion(setting, present, judgement)]
    return [*tidied, *_review_waiting(setting, present, judgement)]


def _begin(setting: _Setting, judgement: Judgement | None) -> list[DecisionMove]:
    if judgement is None:
        return []
    decision = _made(setting, judgement)
    return [DecisionMove(decision, None, decision.reasons[0], GPUWARDEN, setting.now)]


def _review_exclusion(
    setting: _Setting, present: Decision, judgement: Judgement | None
) -> list[DecisionMove]:
    """An exclusion in force: renewed, raised, or ended on evidence; guards do not touch it."""
    if setting.case.state is EntityState.IN_REPAIR:
        return []
    stands = _stands(present, setting.case) and not _only_score_holds(present, setting)
    if judgement is not None and judgement.rung >= Rung.EXCLUDE:
        return _raised(setting, present, judgement) or _renewed(setting, present, judgement)
    if stands and not _expired(present, setting.now):
        return []
    if stands:
        return [_ended(present, DecisionPhase.EXPIRED, "its evidence was not renewed", setting.now)]
    why = "no open incident asks for it any more"
    return [_ended(present, DecisionPhase.LIFTED, why, setting.now)]


def _raised(setting: _Setting, present: Decision, judgement: Judgement) -> list[DecisionMove]:
    """A higher rung, where the policy leaves that to us, else the advice to approve it."""
    if present.is_held(setting.now):
        return []
    acting = judgement.highest(Mode.ACT, setting.pool)
    advising = judgement.highest(Mode.ADVISE, setting.pool)
    rung = max(acting, present.rung)
    advised = advising if advising > rung else Rung.OBSERVE
    if (rung, advised) == (present.rung, present.advised):
        return []
    raised = replace(present, rung=rung, advised=advised)
    if max(rung, advised) > present.rung:
        raised = replace(
            raised,
            reasons=_reasons(judgement),
            confidence=judgement.confidence,
            incident_id=judgement.incident.id,
        )
    if rung > present.rung:  # whoever approved the lower one did not decide this
        raised = replace(raised, decided_by=judgement.decided_by)
    reason = _reasons(judgement)[0]
    if rung == present.rung:
        told = f"{advised.name.lower()} is advised: {reason}"
        reason = told if advised else "no higher rung is advised any more"
    return [DecisionMove(raised, present.phase, reason, GPUWARDEN, setting.now)]


def _renewed(setting: _Setting, present: Decision, judgement: Judgement) -> list[DecisionMove]:
    """Evidence still stands: the expiry moves on, in half-lives so that few facts are stored."""
    half = present.expires_at is None or (
        present.expires_at - setting.now > setting.pool.exclusion_ttl_s / 2
    )
    leading = judgement.incident.id
    leads_on = _stands(present, setting.case)
    if half and leads_on:
        return []
    expires_at = present.expires_at and max(
        present.expires_at, setting.now + setting.pool.exclusion_ttl_s
    )
    renewed = replace(
        present, expires_at=expires_at, incident_id=present.incident_id if leads_on else leading
    )
    reason = f"evidence stands: {_reasons(judgement)[0]}"
    return [DecisionMove(renewed, present.phase, reason, GPUWARDEN, setting.now)]


def _review_waiting(
    setting: _Setting, present: Decision, judgement: Judgement | None
) -> list[DecisionMove]:
    """Advice, a proposal or a held-back decision: judged again each time."""
    now = setting.now
    if judgement is None:
        return [_ended(present, DecisionPhase.LIFTED, "nothing asks for it any more", now)]
    made = _made(setting, judgement)
    if present.is_held(now) and (made.phase is DecisionPhase.IN_FORCE or made.rung > present.rung):
        return []
    if made.rung >= Rung.EXCLUDE > present.rung:
        superseded = _ended(present, DecisionPhase.LIFTED, f"superseded by {made.id}", now)
        return [superseded, DecisionMove(made, None, made.reasons[0], GPUWARDEN, now)]
    same = replace(made, id=present.id, decided_at=present.decided_at, stay=present.stay)
    if same.phase is DecisionPhase.IN_FORCE:
        same = replace(same, decided_at=now)
    if not _worth_storing(present, same):
        return []
    return [DecisionMove(same, present.phase, same.reasons[0], GPUWARDEN, now)]


def _stands(present: Decision, case: EntityCase) -> bool:
    """Whether the incident that a decision rests on is still open, and itself the cause."""
    open_ids = {
        i.id
        for i in case.incidents
        if i.phase is not IncidentPhase.RESOLVED and i.parent_id is None
    }
    return present.incident_id in open_ids


def _only_score_holds(present: Decision, setting: _Setting) -> bool:
    """Whether nothing but a score that may not exclude keeps an exclusion's incident open.

    A score looks back: hours after a lost GPU came back with a reboot it still counts that loss.
    Evidence that has cleared keeps the exclusion for the dwell, as everywhere.
    """
    standing = [
        item
        for incident in setting.case.incidents
        if incident.id == present.incident_id
        for item in incident.evidence
        if not item.echo
        and standing_of(item, setting.now, setting.pool.dwell_s) is not Standing.OVER
    ]
    return bool(standing) and all(_may_not_hold(item) for item in standing)


def _may_not_hold(item: EvidenceItem) -> bool:
    return item.detector == LEARNED_DETECTOR and item.max_rung < Rung.EXCLUDE


def _worth_storing(present: Decision, new: Decision) -> bool:
    return (
        (present.phase, present.rung, present.guard, present.mode, present.advised)
        != (new.phase, new.rung, new.guard, new.mode, new.advised)
        or present.incident_id != new.incident_id
        or abs(present.confidence - new.confidence) >= _CONFIDENCE_STEP
        or present.policy_version != new.policy_version
    )


def _made(setting: _Setting, judgement: Judgement) -> Decision:
    """A decision for a judgement, in the phase that mode and guards allow."""
    step = _step(setting.pool, judgement)
    phase, guard = _phase(setting, judgement, step)
    risk = setting.case.risk
    return Decision(
        id=setting.new_id(),
        entity=setting.case.entity,
        rung=step.rung,
        phase=phase,
        mode=step.mode,
        fault_class=judgement.incident.fault_class,
        reasons=_reasons(judgement),
        confidence=judgement.confidence,
        decided_by=judgement.decided_by,
        incident_id=judgement.incident.id,
        policy_version=setting.policy_version,
        model_version=risk.model_version if risk is not None else "",
        decided_at=setting.now,
        expires_at=setting.now + setting.pool.exclusion_ttl_s,
        guard=guard,
        advised=step.advised,
        jobs=tuple(sorted(setting.case.seat.jobs)),
    )


def _step(pool: PoolPolicy, judgement: Judgement) -> _Step:
    """The highest rung that is left to us, else the highest that is advised, else observed."""
    acting, advising = judgement.highest(Mode.ACT, pool), judgement.highest(Mode.ADVISE, pool)
    if acting is not Rung.OBSERVE:
        advised = advising if advising > acting else Rung.OBSERVE
        return _Step(acting, Mode.ACT, advised)
    if advising is not Rung.OBSERVE:
        return _Step(advising, Mode.ADVISE)
    return _Step(judgement.rung, pool.mode_of(judgement.incident.fault_class, judgement.rung))


def _phase(setting: _Setting, judgement: Judgement, step: _Step) -> tuple[DecisionPhase, str]:
    """Advice below exclude changes nothing and is always a proposal."""
    if step.rung < Rung.EXCLUDE:
        return DecisionPhase.PROPOSED, ""
    match step.mode:
        case Mode.OBSERVE | Mode.ADVISE:
            return DecisionPhase.PROPOSED, ""
        case Mode.ACT:
            guard = _guard(setting, judgement, step.rung)
            return (DecisionPhase.HELD_BACK if guard else DecisionPhase.IN_FORCE), guard
        case _:
            assert_never(step.mode)


def _guard(setting: _Setting, judgement: Judgement, rung: Rung) -> str:
    case, load = setting.case, setting.load
    if load.breaker is Breaker.CLOSED and _cools_down(setting, judgement, rung):
        return Guard.COOL_DOWN
    return guard_of(setting.pool.cap, load, case.entity.node_id, case.seat)


def _cools_down(setting: _Setting, judgement: Judgement, rung: Rung) -> bool:
    """Whether it is back for too short a time for evidence that does not act alone.

    On probation it is not: a relapse that the first symptom shows must not wait.
    """
    case, returned_at = setting.case, setting.case.returned_at
    if returned_at is None or case.state is EntityState.PROBATION or rung in judgement.alone:
        return False
    cool_down_s = setting.pool.cool_down_of(judgement.incident.fault_class, rung)
    return setting.now - returned_at < cool_down_s


def _reasons(judgement: Judgement) -> tuple[str, ...]:
    """What decided with the first sign before it, then what else stands, each once."""
    decisive, evidence = judgement.decisive, judgement.incident.evidence
    told = (decisive, first_sign(decisive, evidence))
    others = (item.sentence for item in evidence if not item.echo and item not in told)
    return (statement_of(decisive, evidence), *dict.fromkeys(others))


def _expired(decision: Decision, now: float) -> bool:
    return decision.expires_at is not None and now >= decision.expires_at


def _ended(decision: Decision, phase: DecisionPhase, why: str, now: float) -> DecisionMove:
    return DecisionMove(replace(decision, phase=phase), decision.phase, why, GPUWARDEN, now)
