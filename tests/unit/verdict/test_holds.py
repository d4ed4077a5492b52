"""A held decision goes no further, and ends all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.entities import EntityState, Rung
from gpuwarden_verdict.policy.document import DecisionPhase, Mode, Stay
from gpuwarden_verdict.policy.evaluate import (
    DecisionError,
    EntityCase,
    approve,
    hold,
    let_go,
    revoke,
)
from tests.builders.cases import ACT, GPU, NOW, incident, made, one

STAY = Stay("ann", "checkpoint under way", NOW + 60.0)
ADVISE = replace(ACT, mode=Mode.ADVISE)


def test_held_advice_is_neither_approved_nor_put_in_force() -> None:
    case = EntityCase(GPU, (incident(),))
    held = hold(made(case, ADVISE), STAY, NOW).decision
    with pytest.raises(DecisionError, match=r"held by ann: checkpoint under way"):
        approve(held, "bo", "now", NOW)
    assert one(replace(case, decisions=(held,)), ACT) is None, "also where the pool may act"
    free = let_go(held, "bo", "saved", NOW).decision
    assert approve(free, "bo", "now", NOW).decision.phase is DecisionPhase.IN_FORCE
    over = replace(held, stay=replace(STAY, until=NOW))
    assert made(replace(case, decisions=(over,)), ACT).phase is DecisionPhase.IN_FORCE


def test_a_held_exclusion_does_not_rise_and_ends_with_its_evidence() -> None:
    case = EntityCase(GPU, (incident(),))
    held = hold(made(case), STAY, NOW).decision
    assert (held.phase, held.rung) == (DecisionPhase.IN_FORCE, Rung.EXCLUDE)
    assert one(replace(case, decisions=(held,), state=EntityState.EXCLUDED)) is None
    ended = made(EntityCase(GPU, (), (held,), state=EntityState.EXCLUDED))
    assert ended.phase is DecisionPhase.LIFTED
    assert revoke(held, "ann", "sound", NOW).decision.phase is DecisionPhase.REVOKED


def test_only_what_lives_is_held_and_only_what_is_held_is_let_go() -> None:
    decision = made(EntityCase(GPU, (incident(),)))
    ended = replace(decision, phase=DecisionPhase.LIFTED)
    for wrong in (ended, replace(decision, decided_by="pin")):
        with pytest.raises(DecisionError, match="nothing to hold"):
            hold(wrong, STAY, NOW)
    with pytest.raises(DecisionError, match="not held"):
        let_go(decision, "ann", "why", NOW)
