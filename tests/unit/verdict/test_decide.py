from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import (
    Contact,
    EntityRef,
    EntityState,
    FaultClass,
    Rung,
    Severity,
)
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import Incident, IncidentPhase
from gpuwarden_verdict.incidents.lifecycle import acquit
from gpuwarden_verdict.policy.document import (
    Cap,
    DecisionPhase,
    Mode,
    Pin,
    PinKind,
    PoolPolicy,
)
from gpuwarden_verdict.policy.evaluate import (
    DecisionError,
    EntityCase,
    Hold,
    PoolLoad,
    approve,
    decide,
    revoke,
)
from gpuwarden_verdict.signals import Persistence, Plane
from tests.builders.cases import ACT, GPU, NOW, ROOM, incident, item, made, one, pools
from tests.builders.verdict import START, counter_of


@pytest.mark.parametrize(
    ("mode", "phase"),
    [
        (Mode.OBSERVE, DecisionPhase.PROPOSED),
        (Mode.ADVISE, DecisionPhase.PROPOSED),
        (Mode.ACT, DecisionPhase.IN_FORCE),
    ],
)
def test_the_mode_decides_what_comes_into_force(mode: Mode, phase: DecisionPhase) -> None:
    decision = made(EntityCase(GPU, (incident(),)), replace(ACT, mode=mode))
    assert (decision.phase, decision.rung, decision.decided_by) == (phase, Rung.EXCLUDE, "rule")
    assert decision.reasons == ("XID 79",)


def test_reasons_lead_with_what_decided_not_with_what_came_first() -> None:
    wear = item(
        detector="xid:63",
        sentence="XID 63",
        score=0.3,
        severity=Severity.WARNING,
        acts_alone=False,
        max_rung=Rung.SUSPECT,
        first_at=START - 10,
        received_at=START - 100,
    )
    failed = item(detector="row_remap_failure", sentence="remapping failed")
    other = item(detector="ecc", sentence="errors", acts_alone=False, score=0.5)
    decision = made(EntityCase(GPU, (incident(GPU, wear, failed, other),)))
    assert decision.rung is Rung.EXCLUDE
    assert decision.reasons == ("remapping failed; first sign: XID 63", "errors")


def test_the_decisive_evidence_is_one_that_may_ask_for_so_much() -> None:
    grave = item(sentence="grave advice", acts_alone=False, max_rung=Rung.SUSPECT)
    able = item(
        detector="gpu_lost",
        sentence="gone",
        acts_alone=False,
        score=0.9,
        severity=Severity.ERROR,
        plane=Plane.STRUCTURE,
        received_at=START - 100,
    )
    older = replace(grave, received_at=START - 100)
    decision = made(EntityCase(GPU, (incident(GPU, older, able),)))
    assert (decision.rung, decision.reasons[0]) == (Rung.EXCLUDE, "gone")
    assert decision.expires_at == NOW + 86400


def test_what_observe_proposed_comes_into_force_when_the_pool_may_act() -> None:
    case = EntityCase(GPU, (incident(),))
    proposed = made(case, replace(ACT, mode=Mode.OBSERVE))
    acted = made(replace(case, decisions=(proposed,)))
    assert (acted.id, acted.phase, acted.mode) == (proposed.id, DecisionPhase.IN_FORCE, Mode.ACT)


def test_evidence_that_does_not_act_alone_settles_first_and_needs_confidence() -> None:
    waits = item(acts_alone=False, score=0.85, received_at=NOW - 29)
    assert one(EntityCase(GPU, (incident(GPU, waits),))) is None
    settled = replace(waits, received_at=NOW - 30)
    assert made(EntityCase(GPU, (incident(GPU, settled),))).rung is Rung.EXCLUDE
    weak = replace(settled, score=0.5)
    assert made(EntityCase(GPU, (incident(GPU, weak),))).rung is Rung.SUSPECT
    two = (weak, replace(weak, detector="d", plane=Plane.COUNTERS, score=0.65))
    assert made(EntityCase(GPU, (incident(GPU, *two),))).rung is Rung.EXCLUDE


@pytest.mark.parametrize(
    "changes",
    [
        {"fault_class": FaultClass.APPLICATION},
        {"fault_class": FaultClass.OPERATOR},
        {"parent_id": "inc-leaf"},
        {"phase": IncidentPhase.RESOLVED},
    ],
)
def test_what_never_excludes_however_sure(changes: dict[str, object]) -> None:
    pool = replace(ACT, exclude_confidence=0.0, settle_s=0.0)
    decision = one(EntityCase(GPU, (incident(GPU, **changes),)), pool)
    assert decision is None or decision.rung is Rung.SUSPECT


@pytest.mark.parametrize(
    "change",
    [
        {"max_rung": Rung.SUSPECT},
        {"severity": Severity.WARNING},
        {"application_possible": True},
        {"echo": True},
        {"fault_class": FaultClass.UNKNOWN, "acts_alone": False},
    ],
)
def test_evidence_that_never_excludes_however_sure(change: dict[str, object]) -> None:
    pool = replace(ACT, exclude_confidence=0.0, settle_s=0.0)
    weak = item(**change)
    decision = one(EntityCase(GPU, (incident(GPU, weak, fault_class=weak.fault_class),)), pool)
    assert decision is None or decision.rung is Rung.SUSPECT


@pytest.mark.parametrize("contact", [Contact.SILENT, Contact.NEVER])
def test_what_is_not_heard_of_decides_only_on_evidence_that_acts_alone(contact: Contact) -> None:
    waits = item(acts_alone=False)
    assert made(EntityCase(GPU, (incident(GPU, waits),), contact=contact)).rung is Rung.SUSPECT
    assert made(EntityCase(GPU, (incident(),), contact=contact)).rung is Rung.EXCLUDE
    assert one(EntityCase(GPU, (), contact=contact)) is None


def test_a_storm_is_not_judged_and_what_was_proposed_for_it_is_lifted() -> None:
    case = EntityCase(GPU, (incident(),), storms=frozenset({"inc-GPU-0-0"}))
    assert one(case) is None
    proposed = made(EntityCase(GPU, (incident(),)), replace(ACT, mode=Mode.OBSERVE))
    assert made(replace(case, decisions=(proposed,))).phase is DecisionPhase.LIFTED


def test_what_was_late_waits_with_everything_that_follows_it() -> None:
    assert one(EntityCase(GPU, (incident(),), hold=Hold.ALL)) is None
    in_force = made(EntityCase(GPU, (incident(),)))
    assert one(EntityCase(GPU, (), decisions=(in_force,), hold=Hold.ALL)) is None


@pytest.mark.parametrize(
    "waits",
    [
        {"acts_alone": False, "received_at": START - 1000},
        {"detector": "gpu_lost"},
        {"detector": "row_remap_failure", "persistence": Persistence.PART},
        {"detector": "check_failed"},
    ],
)
def test_while_news_follow_only_what_the_catalogue_lets_decide_alone_does(
    waits: dict[str, object],
) -> None:
    other = incident(GPU, item(**waits), id="inc-2")
    assert one(EntityCase(GPU, (other,), hold=Hold.CORROBORATED)) is None
    both = EntityCase(GPU, (other, incident()), hold=Hold.CORROBORATED)
    decision = made(both)
    assert (decision.rung, decision.incident_id) == (Rung.EXCLUDE, incident().id)


def test_while_news_follow_an_exclusion_is_made_or_raised_and_nothing_else_moves() -> None:
    held = EntityCase(GPU, (incident(),), hold=Hold.CORROBORATED)
    in_force = made(held)
    late = NOW + 80000
    assert one(replace(held, decisions=(in_force,)), now=late) is None  # not renewed
    assert one(replace(held, incidents=(), decisions=(in_force,))) is None  # nor lifted
    worse = incident(GPU, item(max_rung=Rung.EVICT))
    assert made(replace(held, incidents=(worse,), decisions=(in_force,))).rung is Rung.EVICT
    weak = incident(GPU, item(acts_alone=False, score=0.5))
    advice = made(EntityCase(GPU, (weak,)))
    assert one(replace(held, incidents=(), decisions=(advice,))) is None
    moves = decide(replace(held, decisions=(advice,)), ACT, "v1", ROOM, NOW, counter_of("new"))
    assert [m.decision.phase for m in moves] == [DecisionPhase.LIFTED, DecisionPhase.IN_FORCE]


def test_exclusion_is_raised_in_place_and_never_lowered() -> None:
    first = made(EntityCase(GPU, (incident(),)))
    worse = incident(GPU, item(max_rung=Rung.EVICT))
    raised = made(EntityCase(GPU, (worse,), decisions=(first,)))
    assert (raised.id, raised.rung, raised.decided_at) == (first.id, Rung.EVICT, first.decided_at)
    weaker = incident(GPU, item(score=0.4, acts_alone=False))
    assert one(EntityCase(GPU, (weaker,), decisions=(raised,))) is None


def test_advice_is_superseded_by_an_exclusion() -> None:
    weak = item(acts_alone=False, score=0.5)
    advice = made(EntityCase(GPU, (incident(GPU, weak),)))
    moves = decide(
        EntityCase(GPU, (incident(),), decisions=(advice,)), ACT, "v1", ROOM, NOW, counter_of("new")
    )
    assert [m.decision.phase for m in moves] == [DecisionPhase.LIFTED, DecisionPhase.IN_FORCE]
    assert "superseded by new-1" in moves[0].reason


def test_renewal_moves_the_expiry_in_half_lives_and_unrenewed_evidence_expires() -> None:
    first = made(EntityCase(GPU, (incident(),)))
    case = EntityCase(GPU, (incident(),), decisions=(first,))
    assert one(case, now=NOW + 43199) is None
    renewed = one(case, now=NOW + 43201)
    assert renewed is not None
    assert renewed.expires_at == NOW + 43201 + 86400
    cleared = incident(GPU, item(cleared_at=NOW), phase=IncidentPhase.MITIGATED)
    waiting = EntityCase(GPU, (cleared,), decisions=(first,))
    assert one(waiting, now=NOW + 86399) is None
    expired = one(waiting, now=NOW + 86400)
    assert expired is not None
    assert expired.phase is DecisionPhase.EXPIRED


def test_nothing_ends_while_in_repair() -> None:
    first = made(EntityCase(GPU, (incident(),)))
    case = EntityCase(GPU, (), decisions=(first,), state=EntityState.IN_REPAIR)
    assert one(case, now=NOW + 1e7) is None
    back = replace(case, state=EntityState.PROBATION)
    assert made(back).phase is DecisionPhase.LIFTED


def test_an_acquitted_incident_decides_again_only_when_graver_or_of_another_class() -> None:
    error = item(severity=Severity.ERROR)
    acquitted = acquit(incident(GPU, error), "ann", "sound", NOW).incident
    assert one(EntityCase(GPU, (acquitted,))) is None
    graver = replace(acquitted, severity=Severity.CRITICAL)
    assert made(EntityCase(GPU, (graver,))).rung is Rung.EXCLUDE
    relabelled = replace(acquitted, fault_class=FaultClass.MEMORY)
    assert made(EntityCase(GPU, (relabelled,))).rung is Rung.EXCLUDE
    assert one(EntityCase(GPU, (acquitted,)), now=NOW + 86400) is not None


def test_pins_beat_mode_cap_and_evidence_and_end_with_the_pin() -> None:
    pin = Pin(GPU, PinKind.EXCLUDE, "ann", "smells burnt", NOW)
    full = PoolLoad(gpu_nodes=1, excluded_nodes=frozenset({"x"}))
    pool = replace(ACT, mode=Mode.OBSERVE, cap=Cap(0, 0.0))
    pinned = made(EntityCase(GPU, (), pins=(pin,)), pool, full)
    assert (pinned.phase, pinned.decided_by) == (DecisionPhase.IN_FORCE, "pin")
    assert one(EntityCase(GPU, (), decisions=(pinned,), pins=(pin,)), pool, full) is None
    assert made(EntityCase(GPU, (), decisions=(pinned,)), pool, full).phase is DecisionPhase.LIFTED
    allowed = replace(pin, kind=PinKind.ALLOW)
    assert made(EntityCase(GPU, (incident(),), pins=(allowed,))).rung is Rung.SUSPECT
    in_force = made(EntityCase(GPU, (incident(),)))
    lifted = made(EntityCase(GPU, (incident(),), decisions=(in_force,), pins=(allowed,)))
    assert lifted.phase is DecisionPhase.LIFTED
    over = replace(allowed, expires_at=NOW)
    assert made(EntityCase(GPU, (incident(),), pins=(over,))).rung is Rung.EXCLUDE


def test_people_approve_and_revoke_what_waits_or_stands() -> None:
    waiting = made(EntityCase(GPU, (incident(),)), replace(ACT, mode=Mode.ADVISE))
    approved = approve(waiting, "ann", "yes", NOW + 5).decision
    assert (approved.phase, approved.decided_by) == (DecisionPhase.IN_FORCE, "operator:ann")
    assert one(EntityCase(GPU, (incident(),), decisions=(approved,))) is None
    with pytest.raises(DecisionError):
        approve(approved, "ann", "again", NOW)
    gone = revoke(approved, "ann", "no", NOW).decision
    with pytest.raises(DecisionError):
        revoke(gone, "ann", "again", NOW)


# properties

PHASES = st.sampled_from(list(IncidentPhase))


items = st.builds(
    item,
    score=st.floats(0, 1),
    severity=st.sampled_from(list(Severity)),
    acts_alone=st.booleans(),
    echo=st.booleans(),
    application_possible=st.booleans(),
    max_rung=st.sampled_from([Rung.SUSPECT, Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT]),
    plane=st.sampled_from(list(Plane)),
    persistence=st.sampled_from(list(Persistence)),
    received_at=st.floats(START, NOW),
    cleared_at=st.one_of(st.none(), st.just(NOW - 1)),
)


@st.composite
def incidents(draw: st.DrawFn, entity: EntityRef = GPU) -> Incident:
    evidence = draw(st.lists(items, min_size=1, max_size=3))
    return incident(
        entity,
        *evidence,
        id=draw(st.sampled_from(["inc-1", "inc-2"])),
        fault_class=draw(st.sampled_from(list(FaultClass))),
        phase=draw(PHASES),
    )


cases = st.builds(
    EntityCase,
    entity=st.just(GPU),
    incidents=st.lists(incidents(), max_size=2).map(tuple),
    state=st.sampled_from(list(EntityState)),
    contact=st.sampled_from(list(Contact)),
    hold=st.sampled_from(list(Hold)),
)


@settings(max_examples=150)
@given(cases, pools)
def test_the_same_inputs_give_the_same_decision_and_observe_never_acts(
    case: EntityCase, pool: PoolPolicy
) -> None:
    first = decide(case, pool, "v1", ROOM, NOW, counter_of("dec"))
    assert first == decide(case, pool, "v1", ROOM, NOW, counter_of("dec"))
    for move in first:
        if pool.mode is not Mode.ACT:
            assert not covers(move.decision)
        alone = any(i.acts_alone for one in case.incidents for i in one.evidence)
        if move.decision.rung >= Rung.EXCLUDE and not alone:
            assert case.contact is Contact.LIVE
            assert move.decision.fault_class is not FaultClass.UNKNOWN
