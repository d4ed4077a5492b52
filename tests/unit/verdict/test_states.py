from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.entities import TRANSITIONS, EntityState, FaultClass, Rung
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.document import Decision, DecisionPhase, Mode
from gpuwarden_verdict.policy.states import (
    STEPS,
    EntityRecord,
    Trigger,
    judge_state,
    next_state,
)
from tests.builders.verdict import START, gpu_ref

GPU = gpu_ref(0, 0)
NOW = START + 100.0


def test_every_step_is_in_the_table_of_transitions_and_every_state_has_a_way_back() -> None:
    for (state, _), after in STEPS.items():
        assert after in TRANSITIONS[state]
    for start in EntityState:
        reached = {start}
        for _ in EntityState:
            reached |= {next_state(state, trigger) for state in reached for trigger in Trigger}
        assert EntityState.HEALTHY in reached


@pytest.mark.parametrize("state", list(EntityState))
@pytest.mark.parametrize("trigger", list(Trigger))
def test_leaving_repair_needs_a_passed_check_a_revoke_or_the_end_of_the_node(
    state: EntityState, trigger: Trigger
) -> None:
    after = next_state(state, trigger)
    assert after is state or after in TRANSITIONS[state]
    if state is EntityState.IN_REPAIR:
        assert (after is EntityState.PROBATION) is (trigger is Trigger.CHECK_PASSED)
        ends = {Trigger.CHECK_PASSED, Trigger.REVOKED, Trigger.RETIRED, Trigger.NODE_RETIRED}
        assert (after is not state) is (trigger in ends)
    if state is EntityState.RETIRED:
        assert (after is not state) is (trigger is Trigger.RETURNED)


decisions = st.lists(
    st.builds(
        Decision,
        id=st.just("d"),
        entity=st.just(GPU),
        rung=st.sampled_from(list(Rung)),
        phase=st.sampled_from(list(DecisionPhase)),
        mode=st.just(Mode.OBSERVE),
        fault_class=st.just(FaultClass.BUS),
        reasons=st.just(("r",)),
        confidence=st.just(0.9),
        decided_by=st.just("rule"),
        incident_id=st.none(),
        policy_version=st.just(""),
        model_version=st.just(""),
        decided_at=st.just(NOW),
        expires_at=st.none(),
    ),
    max_size=3,
)


@given(st.sampled_from(list(EntityState)), decisions, st.floats(0, 2000))
def test_states_move_by_the_table_and_never_past_suspect_without_an_exclusion_in_force(
    state: EntityState, found: list[Decision], wait: float
) -> None:
    after = judge_state(EntityRecord(state, NOW), found, NOW + wait, 600.0)
    assert after.state is state or after.state in TRANSITIONS[state]
    if not any(covers(decision) for decision in found):
        assert after.state not in (EntityState.EXCLUDED, EntityState.DRAINING)
    if after.state is not state:
        assert after.since == NOW + wait
