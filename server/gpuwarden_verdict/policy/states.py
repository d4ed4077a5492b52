"""Entity states: one table of triggers, every step of it in TRANSITIONS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from gpuwarden_verdict.entities import EntityState, Rung
from gpuwarden_verdict.policy.document import Decision, DecisionPhase


class Trigger(StrEnum):
    """What can move an entity's state."""

    SUSPECTED = "suspected"
    CLEARED = "cleared"
    EXCLUDED = "excluded"
    DRAIN_ASKED = "drain_asked"
    LIFTED = "lifted"
    REVOKED = "revoked"
    REPAIR_BEGUN = "repair_begun"
    CHECK_PASSED = "check_passed"
    PROBATION_OVER = "probation_over"
    RETIRED = "retired"  # the node itself was
    NODE_RETIRED = "node_retired"  # the node that the GPU sits in was
    RETURNED = "returned"  # a retired node's agent sends again


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """State of an entity and since when (epoch seconds)."""

    state: EntityState
    since: float


_S, _T = EntityState, Trigger
_OF_THE_FLEET = tuple(state for state in EntityState if state is not EntityState.RETIRED)
STEPS = MappingProxyType(
    {
        (_S.HEALTHY, _T.SUSPECTED): _S.SUSPECT,
        (_S.HEALTHY, _T.EXCLUDED): _S.EXCLUDED,
        (_S.SUSPECT, _T.CLEARED): _S.HEALTHY,
        (_S.SUSPECT, _T.EXCLUDED): _S.EXCLUDED,
        (_S.EXCLUDED, _T.DRAIN_ASKED): _S.DRAINING,
        (_S.EXCLUDED, _T.LIFTED): _S.PROBATION,
        (_S.EXCLUDED, _T.REVOKED): _S.HEALTHY,
        (_S.EXCLUDED, _T.REPAIR_BEGUN): _S.IN_REPAIR,
        (_S.DRAINING, _T.LIFTED): _S.PROBATION,
        (_S.DRAINING, _T.REVOKED): _S.HEALTHY,
        (_S.DRAINING, _T.REPAIR_BEGUN): _S.IN_REPAIR,
        (_S.IN_REPAIR, _T.CHECK_PASSED): _S.PROBATION,
        (_S.IN_REPAIR, _T.REVOKED): _S.HEALTHY,
        (_S.PROBATION, _T.PROBATION_OVER): _S.HEALTHY,
        (_S.PROBATION, _T.EXCLUDED): _S.EXCLUDED,
        (_S.RETIRED, _T.RETURNED): _S.HEALTHY,
    }
    | {(state, _T.RETIRED): _S.RETIRED for state in _OF_THE_FLEET}
    | {(state, _T.NODE_RETIRED): _S.HEALTHY for state in _OF_THE_FLEET if state is not _S.HEALTHY}
)
_OUT = frozenset({EntityState.EXCLUDED, EntityState.DRAINING})


def next_state(state: EntityState, trigger: Trigger) -> EntityState:
    """The state after a trigger; the same where the trigger means nothing there."""
    return STEPS.get((state, trigger), state)


def step_record(record: EntityRecord, trigger: Trigger, now: float) -> EntityRecord:
    """The record after a trigger; the same record where nothing changes."""
    state = next_state(record.state, trigger)
    return record if state is record.state else EntityRecord(state, now)


def judge_state(
    record: EntityRecord, decisions: Sequence[Decision], now: float, dwell_s: float
) -> EntityRecord:
    """The record after looking at the entity's decisions.

    A repair in progress is left alone: a passed check ends it (`step_record`), or a person who
    revokes the exclusion that it is for. A revoke must be among `decisions` in the call that
    follows it, else the way back leads over probation, and a repair goes on.

    Args:
        record: Present state.
        decisions: The entity's decisions as they are now: the live ones, and those that ended since
            the last call.
        now: Epoch seconds.
        dwell_s: How long probation lasts.
    """
    trigger = _trigger(record, decisions, now, dwell_s)
    return record if trigger is None else step_record(record, trigger, now)


def _trigger(
    record: EntityRecord, decisions: Sequence[Decision], now: float, dwell_s: float
) -> Trigger | None:
    rung = _rung_in_force(decisions)
    if rung >= Rung.EXCLUDE:
        asked = rung >= Rung.DRAIN and record.state is EntityState.EXCLUDED
        return Trigger.DRAIN_ASKED if asked else Trigger.EXCLUDED
    revoked = any(decision.phase is DecisionPhase.REVOKED for decision in decisions)
    if record.state in _OUT:
        return Trigger.REVOKED if revoked else Trigger.LIFTED
    if record.state is EntityState.PROBATION:
        return Trigger.PROBATION_OVER if now - record.since >= dwell_s else None
    if record.state is EntityState.IN_REPAIR:
        return Trigger.REVOKED if revoked else None
    return Trigger.SUSPECTED if _advised(decisions) else Trigger.CLEARED


def _rung_in_force(decisions: Sequence[Decision]) -> Rung:
    rungs = (d.rung for d in decisions if d.phase is DecisionPhase.IN_FORCE)
    return max(rungs, default=Rung.OBSERVE)


def _advised(decisions: Sequence[Decision]) -> bool:
    live = {DecisionPhase.PROPOSED, DecisionPhase.HELD_BACK, DecisionPhase.IN_FORCE}
    return any(d.phase in live and d.rung >= Rung.SUSPECT for d in decisions)
