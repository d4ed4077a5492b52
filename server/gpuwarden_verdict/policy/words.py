"""What people say about one decision: approve, hold, let go, revoke. Pure: values in, moves out."""

from __future__ import annotations

from dataclasses import replace

from gpuwarden_verdict.entities import Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.document import (
    LIVE_PHASES,
    Decision,
    DecisionMove,
    DecisionPhase,
    Stay,
)
from gpuwarden_verdict.policy.guards import BY_PIN


class DecisionError(Exception):
    """A person's move that the decision's phase does not allow; the message names both."""


def approve(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
    """A person approves advice, or takes a held-back decision over: it comes into force.

    Of an exclusion in force, the higher rung that it advises is approved. Caps bind gpuwarden, not
    people; what people approve counts towards them.

    Raises:
        DecisionError: It is not waiting, or asks for no exclusion.
    """
    if decision.stay is not None and decision.is_held(now):
        raise DecisionError(
            f"decision {decision.id} is held by {decision.stay.by}: {decision.stay.reason}; "
            "end the hold first"
        )
    rung = approvable(decision)
    if rung is None:
        raise DecisionError(
            f"decision {decision.id} is {decision.phase} at rung {decision.rung.name.lower()}: "
            "only a waiting exclusion, or a higher rung that is advised, can be approved"
        )
    approved = replace(
        decision,
        phase=DecisionPhase.IN_FORCE,
        rung=rung,
        advised=Rung.OBSERVE,
        decided_by=f"operator:{by}",
        decided_at=now,
        guard="",
    )
    return DecisionMove(approved, decision.phase, reason, by, now)


def approvable(decision: Decision) -> Rung | None:
    """The rung that a person's approval would put in force, None where nothing waits."""
    if covers(decision):
        return decision.advised if decision.advised > decision.rung else None
    waiting = decision.phase in (DecisionPhase.PROPOSED, DecisionPhase.HELD_BACK)
    return decision.rung if waiting and decision.rung >= Rung.EXCLUDE else None


def hold(decision: Decision, stay: Stay, now: float) -> DecisionMove:
    """A person holds a decision: it neither comes into force nor rises until then.

    That it ends, on evidence or by a person, nobody holds up.

    Raises:
        DecisionError: It has ended, or is a pin's.
    """
    if decision.phase not in LIVE_PHASES or decision.decided_by == BY_PIN:
        what = "a pin's" if decision.decided_by == BY_PIN else decision.phase.value
        raise DecisionError(f"decision {decision.id} is {what}: nothing to hold")
    held = replace(decision, stay=stay)
    return DecisionMove(held, decision.phase, f"held: {stay.reason}", stay.by, now)


def let_go(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
    """A person ends a hold.

    Raises:
        DecisionError: Nobody holds it.
    """
    if not decision.is_held(now):
        raise DecisionError(f"decision {decision.id} is not held")
    return DecisionMove(replace(decision, stay=None), decision.phase, reason, by, now)


def revoke(decision: Decision, by: str, reason: str, now: float) -> DecisionMove:
    """A person revokes.

    Acquit all open incidents of its target (`lifecycle.acquit_all`) in the same transaction, else
    another of them decides the same again at the next sweep.

    Raises:
        DecisionError: It has ended already.
    """
    if decision.phase not in LIVE_PHASES:
        raise DecisionError(f"decision {decision.id} is {decision.phase}: nothing to revoke")
    revoked = replace(decision, phase=DecisionPhase.REVOKED)
    return DecisionMove(revoked, decision.phase, reason, by, now)
