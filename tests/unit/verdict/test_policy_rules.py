"""Rules by class of fault and rung, who may approve, and what holds after a return."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.entities import EntityState, FaultClass, Rung
from gpuwarden_verdict.policy.approval import may_approve
from gpuwarden_verdict.policy.document import (
    DecisionPhase,
    InMaintenance,
    Mode,
    PolicyDocument,
    PoolPolicy,
    Rule,
)
from gpuwarden_verdict.policy.evaluate import (
    DecisionError,
    EntityCase,
    approvable,
    approve,
    decide,
)
from gpuwarden_verdict.policy.guards import GUARD_WORDS, Guard, guard_words
from gpuwarden_verdict.policy.parse import PolicyError, override_mode, parse_policy
from tests.builders.cases import ACT, GPU, NOW, ROOM, incident, item, made, one
from tests.builders.verdict import START, counter_of

TEXT = """
[defaults]
cool_down_s = 900
approvers = ["ana", "role:admin"]
[[defaults.rules]]
classes = ["thermal"]
mode = "observe"
[[pools]]
name = "train"
nodes = ["gpu-*"]
mode = "act"
in_maintenance = "acts_alone"
leave_check = true
cap = { max_per_rack = 1, max_per_job = 2, min_in_service = 60 }
[[pools.rules]]
rungs = ["drain", "evict"]
mode = "advise"
confidence = 0.95
persistence_s = 120
[[pools.rules]]
classes = ["nic", "thermal"]
rungs = ["exclude"]
cool_down_s = 60
approvers = ["sre-*"]
"""
DRAINS = item(max_rung=Rung.DRAIN, score=0.97)
ADVISED_DRAIN = replace(ACT, rules=(Rule(rungs=(Rung.DRAIN,), mode=Mode.ADVISE),))


def test_the_first_rule_that_fits_and_says_a_key_holds() -> None:
    train, default = parse_policy(TEXT).pools
    assert (train.cap.max_per_rack, train.cap.max_per_job, train.cap.min_in_service) == (1, 2, 60)
    assert train.in_maintenance is InMaintenance.ACTS_ALONE
    assert (train.leave_check, default.leave_check) == (True, False)
    assert train.mode_of(FaultClass.BUS, Rung.DRAIN) is Mode.ADVISE
    assert train.mode_of(FaultClass.BUS, Rung.EXCLUDE) is train.mode
    assert train.confidence_of(FaultClass.NIC, Rung.EVICT) == 0.95
    assert train.confidence_of(FaultClass.NIC, Rung.EXCLUDE) is None
    assert train.persistence_of(FaultClass.BUS, Rung.DRAIN) == 120.0
    assert train.persistence_of(FaultClass.BUS, Rung.EXCLUDE) == 0.0
    assert train.cool_down_of(FaultClass.NIC, Rung.EXCLUDE) == 60.0
    assert train.cool_down_of(FaultClass.BUS, Rung.EXCLUDE) == 900.0
    assert train.approvers_of(FaultClass.NIC, Rung.EXCLUDE) == ("sre-*",)
    assert train.approvers_of(FaultClass.NIC, Rung.DRAIN) == ("ana", "role:admin")
    # A pool's own rules stand in place of the default's, as each of its keys does.
    assert train.mode_of(FaultClass.THERMAL, Rung.EXCLUDE) is train.mode
    assert default.mode_of(FaultClass.THERMAL, Rung.EVICT) is Mode.OBSERVE


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("rules = 3", "defaults.rules"),
        ("rules = [3]", "defaults.rules[0]"),
        ("rules = [{}]", "defaults.rules[0]"),
        ('rules = [{ classes = ["nic"] }]', "defaults.rules[0]"),
        ('rules = [{ classes = ["heat"], mode = "act" }]', "defaults.rules[0].classes"),
        ('rules = [{ rungs = ["suspect"], mode = "act" }]', "defaults.rules[0].rungs"),
        ('rules = [{ rung = ["drain"], mode = "act" }]', "defaults.rules[0].rung"),
        ("rules = [{ confidence = 2 }]", "defaults.rules[0].confidence"),
        ("rules = [{ persistence_s = -1 }]", "defaults.rules[0].persistence_s"),
        ("cool_down_s = -1", "defaults.cool_down_s"),
        ("approvers = []", "defaults.approvers"),
        ('approvers = ["role:reader"]', "defaults.approvers"),
        ('in_maintenance = "none"', "defaults.in_maintenance"),
        ("cap = { max_per_rack = -1 }", "defaults.cap.max_per_rack"),
        ("cap = { min_in_service = 0.5 }", "defaults.cap.min_in_service"),
    ],
)
def test_a_mistake_in_a_rule_is_named_with_its_key_and_its_mend(text: str, key: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"[defaults]\n{text}")
    assert caught.value.key == key
    assert caught.value.mend


def test_versions_stay_where_nothing_new_is_said() -> None:
    assert parse_policy("").version == "f2e6f3562409"  # as the first server with a policy gave it
    built_in = (
        "cool_down_s = 0",
        "score_settle_s = 300",
        "leave_check = false",
        'in_maintenance = "hold"',
    )
    said = "\n".join(("[defaults]", *built_in, "cap = { min_in_service = 0 }"))
    assert parse_policy(said).version == parse_policy("").version
    other = ("cool_down_s = 1", "leave_check = true", "cap = { max_per_job = 1 }")
    for text in (*other, "rules = [{ mode = 'act' }]"):
        assert parse_policy(f"[defaults]\n{text}").version != parse_policy("").version


def test_a_rung_that_is_only_advised_waits_while_a_lower_one_acts() -> None:
    case = EntityCase(GPU, (incident(GPU, DRAINS),))
    decision = made(case, ADVISED_DRAIN)
    assert (decision.phase, decision.rung) == (DecisionPhase.IN_FORCE, Rung.EXCLUDE)
    assert (decision.mode, decision.advised) == (Mode.ACT, Rung.DRAIN)
    standing = replace(case, decisions=(decision,))
    assert one(standing, ADVISED_DRAIN) is None  # it goes on waiting, and nothing is raised
    assert approvable(decision) is Rung.DRAIN
    approved = approve(decision, "ana", "saw it", NOW).decision
    assert (approved.rung, approved.advised) == (Rung.DRAIN, Rung.OBSERVE)
    assert approved.decided_by == "operator:ana"
    with pytest.raises(DecisionError):
        approve(approved, "ana", "again", NOW)


def test_what_is_in_force_is_raised_by_itself_only_where_that_rung_may_act() -> None:
    first = made(EntityCase(GPU, (incident(),)), ADVISED_DRAIN)
    worse = EntityCase(GPU, (incident(GPU, DRAINS),), decisions=(first,))
    advised = one(worse, ADVISED_DRAIN)
    assert advised is not None
    assert (advised.rung, advised.advised) == (Rung.EXCLUDE, Rung.DRAIN)
    better = replace(worse, incidents=(incident(),), decisions=(advised,))
    taken_back = one(better, ADVISED_DRAIN)
    assert taken_back is not None
    assert taken_back.advised is Rung.OBSERVE
    for mode in (Mode.OBSERVE, Mode.ADVISE):
        approved = one(replace(worse, decisions=(first,)), replace(ACT, mode=mode))
        assert approved is None or approved.rung is Rung.EXCLUDE
    raised = one(worse, ACT)
    assert raised is not None
    assert (raised.rung, raised.advised) == (Rung.DRAIN, Rung.OBSERVE)


def test_a_class_that_is_only_observed_hides_no_other_that_acts() -> None:
    pool = replace(ACT, rules=(Rule(classes=(FaultClass.THERMAL,), mode=Mode.OBSERVE),))
    hot = incident(GPU, DRAINS, id="inc-hot", fault_class=FaultClass.THERMAL)
    observed = made(EntityCase(GPU, (hot,)), pool)
    assert (observed.phase, observed.mode) == (DecisionPhase.PROPOSED, Mode.OBSERVE)
    both = made(EntityCase(GPU, (hot, incident())), pool)
    assert (both.phase, both.fault_class) == (DecisionPhase.IN_FORCE, FaultClass.BUS)


def test_evidence_must_have_stood_as_long_as_its_rung_asks_for() -> None:
    pool = replace(ACT, rules=(Rule(rungs=(Rung.DRAIN,), persistence_s=200.0),))
    case = EntityCase(GPU, (incident(GPU, DRAINS),))
    assert made(case, pool).rung is Rung.EXCLUDE
    later = one(case, pool, now=START + 200.0)
    assert later is not None
    assert later.rung is Rung.DRAIN
    sure = replace(ACT, rules=(Rule(rungs=(Rung.DRAIN,), confidence=0.98),))
    assert made(case, sure).rung is Rung.EXCLUDE


def _weak(pool: PoolPolicy, **changes: object) -> DecisionPhase:
    weak = item(acts_alone=False, received_at=NOW - 60)
    case = EntityCase(GPU, (incident(GPU, weak),), returned_at=NOW - 100)
    return made(replace(case, **changes), pool).phase  # type: ignore[arg-type]  # fields by name


def test_after_a_return_weaker_evidence_waits_and_what_acts_alone_does_not() -> None:
    pool = replace(ACT, cool_down_s=101.0)
    assert _weak(pool) is DecisionPhase.HELD_BACK
    assert made(EntityCase(GPU, (incident(),), returned_at=NOW - 1), pool).guard == ""
    assert _weak(pool, state=EntityState.PROBATION) is DecisionPhase.IN_FORCE
    assert _weak(pool, returned_at=NOW - 101) is DecisionPhase.IN_FORCE
    assert _weak(pool, returned_at=None) is DecisionPhase.IN_FORCE
    of_class = Rule(classes=(FaultClass.BUS,), cool_down_s=0.0)
    assert _weak(replace(pool, rules=(of_class,))) is DecisionPhase.IN_FORCE
    held = made(
        EntityCase(
            GPU, (incident(GPU, item(acts_alone=False, received_at=NOW - 60)),), returned_at=NOW
        ),
        pool,
    )
    assert held.guard == Guard.COOL_DOWN
    freed = decide(
        EntityCase(
            GPU, (incident(GPU, item(acts_alone=False)),), decisions=(held,), returned_at=NOW
        ),
        pool,
        "v1",
        ROOM,
        NOW + 101,
        counter_of("dec"),
    )
    assert [move.decision.phase for move in freed] == [DecisionPhase.IN_FORCE]


def test_every_guard_has_words_and_one_of_another_version_keeps_its_name() -> None:
    assert set(GUARD_WORDS) == set(Guard)
    assert all(guard_words(guard) for guard in Guard)
    assert (guard_words(""), guard_words("cap_moon")) == ("", "cap_moon")


def test_who_may_approve() -> None:
    assert may_approve((), "anybody", "operator")
    assert may_approve(("ana", "sre-*"), "sre-7", "operator")
    assert not may_approve(("ana",), "bob", "admin")
    assert may_approve(("ana", "role:admin"), "bob", "admin")
    assert not may_approve(("role:admin",), "role:admin", "operator")


_RULES = st.lists(
    st.builds(
        Rule,
        rungs=st.sampled_from([(), (Rung.EXCLUDE,), (Rung.DRAIN,), (Rung.EVICT,)]),
        mode=st.none() | st.sampled_from(Mode),
        confidence=st.none() | st.floats(0, 1),
        persistence_s=st.none() | st.floats(0, 900),
        cool_down_s=st.none() | st.floats(0, 900),
    ),
    max_size=4,
).map(tuple)


@given(_RULES, st.floats(0, 1), st.floats(0, 900))
def test_a_higher_rung_is_never_easier_than_a_lower_one(
    rules: tuple[Rule, ...], score: float, stood_s: float
) -> None:
    pool = replace(ACT, rules=rules)
    of_class = FaultClass.MEMORY
    for lower, higher in pairwise((Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT)):
        modes = [list(Mode).index(pool.mode_of(of_class, rung)) for rung in (lower, higher)]
        assert modes[1] <= modes[0]
        assert pool.persistence_of(of_class, higher) >= pool.persistence_of(of_class, lower)
        assert pool.cool_down_of(of_class, higher) >= pool.cool_down_of(of_class, lower)
    asked = item(max_rung=Rung.EVICT, score=score, first_at=NOW - stood_s)
    decision = one(EntityCase(GPU, (incident(GPU, asked),)), pool)
    excludes = item(max_rung=Rung.EXCLUDE, score=score, first_at=NOW - stood_s)
    lower_one = one(EntityCase(GPU, (incident(GPU, excludes),)), pool)
    if decision is not None and decision.phase is DecisionPhase.IN_FORCE:
        assert lower_one is not None
        assert lower_one.phase is DecisionPhase.IN_FORCE


@pytest.mark.parametrize(
    "document",
    [
        parse_policy(
            '[defaults]\nmode = "act"\n[[defaults.rules]]\nclasses = ["bus"]\nmode = "act"\n'
            '[[pools]]\nname = "prod"\nnodes = ["*"]\nmode = "observe"'
        ),
        override_mode(
            parse_policy('[[defaults.rules]]\nclasses = ["bus"]\nmode = "act"', Mode.ACT),
            Mode.OBSERVE,
        ),
    ],
    ids=["inherited", "overridden"],
)
def test_observe_means_observe_whatever_rules_say(document: PolicyDocument) -> None:
    for rung in (Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT):
        assert document.pools[0].mode_of(FaultClass.BUS, rung) is Mode.OBSERVE


def test_a_rule_beyond_its_own_pool_is_refused() -> None:
    text = '[[pools]]\nname = "a"\nnodes = ["*"]\nmode = "advise"\n[[pools.rules]]\nmode = "act"'
    with pytest.raises(PolicyError, match=r"rules\[0\]\.mode = 'act': rules only weaken"):
        parse_policy(text)


def test_who_approved_a_lower_rung_did_not_decide_a_higher() -> None:
    approved = replace(made(EntityCase(GPU, (incident(),))), decided_by="operator:ana")
    raised = one(EntityCase(GPU, (incident(GPU, DRAINS),), decisions=(approved,)), ACT)
    assert raised is not None
    assert (raised.rung, raised.decided_by) == (Rung.DRAIN, "rule")
