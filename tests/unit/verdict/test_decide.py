from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import (
    Contact,
    EntityRef,
    EntityState,
    FaultClass,
    RecommendedAction,
    Rung,
    Severity,
)
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident, IncidentPhase
from gpuwarden_verdict.incidents.lifecycle import acquit
from gpuwarden_verdict.policy.document import (
    Cap,
    Decision,
    DecisionMove,
    DecisionPhase,
    Mode,
    Pin,
    PinKind,
    PoolPolicy,
)
from gpuwarden_verdict.policy.evaluate import (
    Breaker,
    DecisionError,
    EntityCase,
    PoolLoad,
    approve,
    cap_nodes,
    decide,
    load_after,
    pool_loads,
    revoke,
)
from gpuwarden_verdict.policy.parse import BUILT_IN, parse_policy
from gpuwarden_verdict.signals import Persistence, Plane
from tests.builders.verdict import START, counter_of, gpu_ref, node_ref

GPU = gpu_ref(0, 0)
ACT = replace(BUILT_IN, mode=Mode.ACT, cap=Cap(100, 100.0))
ROOM = PoolLoad(gpu_nodes=100)
NOW = START + 100.0


def item(**changes: object) -> EvidenceItem:
    base = EvidenceItem(
        detector="xid:79",
        sentence="XID 79",
        score=0.95,
        severity=Severity.CRITICAL,
        persistence=Persistence.BOOT,
        acts_alone=True,
        first_at=START,
        last_at=START,
        expires_at=START + 86400,
        count=1,
        numbers={},
        event_ids=("e1",),
        plane=Plane.EVENTS,
        action=RecommendedAction.REBOOT_NODE,
        fault_class=FaultClass.BUS,
        received_at=START,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of EvidenceItem by name


def incident(entity: EntityRef = GPU, *items: EvidenceItem, **changes: object) -> Incident:
    evidence = items or (item(),)
    base = Incident(
        id=f"inc-{entity.key}",
        entity=entity,
        fault_class=FaultClass.BUS,
        severity=max((i.severity for i in evidence), key=list(Severity).index),
        phase=IncidentPhase.OPEN,
        why=evidence[0].sentence,
        action=RecommendedAction.REBOOT_NODE,
        confidence=0.95,
        opened_at=START,
        updated_at=START,
        resolved_at=None,
        boot_id="boot-1",
        evidence=evidence,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # fields of Incident by name


def one(
    case: EntityCase, pool: PoolPolicy = ACT, load: PoolLoad = ROOM, now: float = NOW
) -> Decision | None:
    moves = decide(case, pool, "v1", load, now, counter_of("dec"))
    assert len(moves) <= 1
    return moves[0].decision if moves else None


def made(case: EntityCase, pool: PoolPolicy = ACT, load: PoolLoad = ROOM) -> Decision:
    decision = one(case, pool, load)
    assert decision is not None
    return decision


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


def test_more_events_waiting_hold_decisions_as_they_are() -> None:
    assert one(EntityCase(GPU, (incident(),), more_events=True)) is None
    in_force = made(EntityCase(GPU, (incident(),)))
    assert one(EntityCase(GPU, (), decisions=(in_force,), more_events=True)) is None


def test_the_cap_holds_back_names_its_guard_and_lets_go_when_there_is_room() -> None:
    pool = replace(ACT, cap=Cap(2, 50.0))
    full = PoolLoad(gpu_nodes=100, excluded_nodes=frozenset({"a", "b"}))
    held = made(EntityCase(GPU, (incident(),)), pool, full)
    assert (held.phase, held.guard) == (DecisionPhase.HELD_BACK, "cap_nodes")
    again = EntityCase(GPU, (incident(),), decisions=(held,))
    assert one(again, pool, full) is None  # judged again, nothing new to store
    room = PoolLoad(gpu_nodes=100, excluded_nodes=frozenset({"a"}))
    freed = made(again, pool, room)
    assert (freed.id, freed.phase, freed.guard) == (held.id, DecisionPhase.IN_FORCE, "")
    small = replace(pool, cap=Cap(50, 5.0))
    tight = PoolLoad(gpu_nodes=39, excluded_nodes=frozenset({"a"}))
    assert made(EntityCase(GPU, (incident(),)), small, tight).guard == "cap_percent"
    same_node = PoolLoad(gpu_nodes=39, excluded_nodes=frozenset({"n0"}))
    assert made(EntityCase(GPU, (incident(),)), small, same_node).phase is DecisionPhase.IN_FORCE


@pytest.mark.parametrize(
    ("cap", "nodes", "allowed"),
    [
        (Cap(4, 5.0), 10_000, 4),
        (Cap(400, 5.0), 100, 5),
        (Cap(400, 5.0), 119, 5),
        (Cap(400, 5.0), 3, 1),
        (Cap(400, 5.0), 0, 1),
        (Cap(0, 5.0), 100, 0),
        (Cap(4, 0.0), 100, 0),
        (Cap(400, 29.0), 100, 29),
    ],
)
def test_both_limits_of_the_cap_hold(cap: Cap, nodes: int, allowed: int) -> None:
    assert cap_nodes(cap, nodes) == allowed


def test_an_open_breaker_stops_new_exclusions_and_lets_every_return_pass() -> None:
    tripped = replace(ROOM, breaker=Breaker.OPEN)
    held = made(EntityCase(GPU, (incident(),)), load=tripped)
    assert (held.phase, held.guard) == (DecisionPhase.HELD_BACK, "breaker")
    in_force = made(EntityCase(GPU, (incident(),)))
    lifted = made(EntityCase(GPU, (), decisions=(in_force,)), load=tripped)
    assert lifted.phase is DecisionPhase.LIFTED


def test_loads_count_gpu_nodes_only_leave_pins_out_and_see_our_own_blindness() -> None:
    document = parse_policy('[[pools]]\nname = "a"\nnodes = ["n*"]')
    decisions = [
        made(EntityCase(GPU, (incident(),))),
        replace(made(EntityCase(node_ref(1), (incident(node_ref(1)),))), decided_by="pin"),
        made(EntityCase(node_ref(7), (incident(node_ref(7)),))),  # no GPU node
    ]
    loads = pool_loads(document, decisions, ["n0", "n1", "n2"], frozenset({"n1", "n2"}))
    assert loads["a"] == PoolLoad(3, frozenset({"n0"}), Breaker.OPEN)
    assert loads["default"] == PoolLoad(0)
    assert pool_loads(document, [], ["n0", "n1"], frozenset({"n1"}))["a"].breaker is Breaker.CLOSED


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
    more_events=st.booleans(),
)
pools = st.builds(
    replace,
    st.just(ACT),
    mode=st.sampled_from(list(Mode)),
    exclude_confidence=st.floats(0, 1),
    settle_s=st.floats(0, 60),
)


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(pools, st.sampled_from(list(Breaker)), st.booleans(), st.sampled_from(list(Contact)))
def test_no_guard_mode_or_contact_ever_holds_a_return_back(
    pool: PoolPolicy, breaker: Breaker, full: bool, contact: Contact
) -> None:
    in_force = made(EntityCase(GPU, (incident(),)))
    out = frozenset(f"n{n}" for n in range(100)) if full else frozenset()
    load = PoolLoad(100, out, breaker)
    case = EntityCase(GPU, (), decisions=(in_force,), state=EntityState.EXCLUDED, contact=contact)
    lifted = one(case, pool, load)
    assert lifted is not None
    assert lifted.phase is DecisionPhase.LIFTED


@dataclass
class Pool:
    """Many entities of one pool, decided about in any order."""

    cap: Cap
    nodes: int
    decisions: dict[str, Decision] = field(default_factory=dict)
    ids: object = field(default_factory=lambda: counter_of("dec"))

    def load(self) -> PoolLoad:
        document = replace(parse_policy(""), pools=(replace(ACT, cap=self.cap),))
        names = [f"n{n}" for n in range(self.nodes)]
        return pool_loads(document, self.decisions.values(), names, frozenset())["default"]

    def run(self, entity: EntityRef, faulty: bool, now: float) -> None:
        live = [d for d in self.decisions.values() if d.entity == entity and _is_live(d)]
        case = EntityCase(entity, (incident(entity),) if faulty else (), decisions=tuple(live))
        before = self.load()
        pool = replace(ACT, cap=self.cap)
        moves = decide(case, pool, "v1", before, now, self.ids)  # type: ignore[arg-type]  # ids
        self.apply(moves, before)

    def apply(self, moves: Sequence[DecisionMove], before: PoolLoad) -> None:
        expected = load_after(before, self.decisions.values(), moves)
        for move in moves:
            self.decisions[move.decision.id] = move.decision
        assert expected.excluded_nodes == self.load().excluded_nodes


def _is_live(decision: Decision) -> bool:
    return decision.phase in (
        DecisionPhase.PROPOSED,
        DecisionPhase.IN_FORCE,
        DecisionPhase.HELD_BACK,
    )


story = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.integers(-1, 2),
        st.sampled_from(["fault", "fault", "fault", "clear", "revoke"]),
        st.floats(0, 50000),
    ),
    max_size=40,
)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 5), st.floats(0, 100), story)
def test_caps_are_never_exceeded_under_any_interleaving(
    most: int, percent: float, steps: list[tuple[int, int, str, float]]
) -> None:
    pool, now = Pool(Cap(most, percent), nodes=8), NOW
    for node, gpu, what, wait in steps:
        now += wait
        entity = node_ref(node) if gpu < 0 else gpu_ref(node, gpu)
        if what == "revoke":
            live = [d for d in pool.decisions.values() if d.entity == entity and _is_live(d)]
            pool.apply([revoke(d, "ann", "no", now) for d in live], pool.load())
        else:
            pool.run(entity, what == "fault", now)
        assert len(pool.load().excluded_nodes) <= cap_nodes(pool.cap, pool.nodes)
