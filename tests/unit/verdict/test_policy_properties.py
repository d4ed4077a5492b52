"""What must hold whatever comes: caps, breaker, observe, unknown, reverses, sameness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarden_verdict.entities import (
    Contact,
    EntityRef,
    EntityState,
    FaultClass,
    Rung,
)
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.document import (
    LIVE_PHASES,
    Cap,
    Decision,
    DecisionMove,
    DecisionPhase,
    InMaintenance,
    Mode,
    Pin,
    PinKind,
    PoolPolicy,
    Rule,
)
from gpuwarden_verdict.policy.evaluate import (
    EntityCase,
    Hold,
    approvable,
    approve,
    decide,
    revoke,
)
from gpuwarden_verdict.policy.guards import (
    Breaker,
    Counted,
    PoolLoad,
    Seat,
    cap_nodes,
    load_after,
    pool_loads,
)
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.cases import ACT, NOW, incident, item
from tests.builders.verdict import counter_of, gpu_ref, node_ref

NODES = 8
RUNGS = (Rung.EXCLUDE, Rung.DRAIN, Rung.EVICT)
rules = st.lists(
    st.builds(
        Rule,
        classes=st.lists(st.sampled_from(list(FaultClass)), max_size=3).map(tuple),
        rungs=st.lists(st.sampled_from(RUNGS), max_size=2).map(tuple),
        mode=st.none() | st.sampled_from(list(Mode)),
        confidence=st.none() | st.floats(0, 1),
        persistence_s=st.none() | st.floats(0, 500),
        cool_down_s=st.none() | st.floats(0, 5000),
    ),
    max_size=4,
).map(tuple)
caps = st.builds(
    Cap,
    max_nodes=st.integers(0, 5),
    max_percent=st.floats(0, 100),
    max_per_rack=st.none() | st.integers(0, 3),
    max_per_job=st.none() | st.integers(0, 3),
    min_in_service=st.integers(0, 9),
)
pools = st.builds(
    replace,
    st.just(ACT),
    mode=st.sampled_from(list(Mode)),
    cap=caps,
    exclude_confidence=st.floats(0, 1),
    settle_s=st.floats(0, 60),
    rules=rules,
    cool_down_s=st.floats(0, 5000),
    in_maintenance=st.sampled_from(list(InMaintenance)),
)
items = st.builds(
    item,
    detector=st.sampled_from(["xid:79", "ecc", "check_failed:x", "learned_score"]),
    score=st.floats(0, 1),
    acts_alone=st.booleans(),
    fault_class=st.sampled_from(list(FaultClass)),
    max_rung=st.sampled_from(list(Rung)),
    application_possible=st.booleans(),
    received_at=st.floats(NOW - 1000, NOW),
)
entities = st.builds(
    lambda node, gpu: node_ref(node) if gpu < 0 else gpu_ref(node, gpu),
    st.integers(0, NODES - 1),
    st.integers(-1, 2),
)


@st.composite
def cases(draw: st.DrawFn, entity: EntityRef | None = None) -> EntityCase:
    """Anything that may come up about an entity that nothing is decided about yet."""
    target = entity or draw(entities)
    found = draw(st.lists(st.lists(items, min_size=1, max_size=3), max_size=3))
    classes = draw(st.permutations(list(FaultClass)))
    told = (
        incident(target, *evidence, id=f"inc-{n}", fault_class=classes[n])
        for n, evidence in enumerate(found)
    )
    return EntityCase(
        target,
        tuple(told),
        state=draw(st.sampled_from([EntityState.HEALTHY, EntityState.PROBATION])),
        contact=draw(st.sampled_from(list(Contact))),
        hold=draw(st.sampled_from(list(Hold))),
        returned_at=draw(st.none() | st.floats(NOW - 5000, NOW)),
    )


def _decided(case: EntityCase, pool: PoolPolicy, load: PoolLoad) -> list[DecisionMove]:
    return decide(case, pool, "v1", load, NOW, counter_of("dec"))


@settings(max_examples=150)
@given(cases(), pools)
def test_observe_and_unapproved_advice_never_act(case: EntityCase, pool: PoolPolicy) -> None:
    for move in _decided(case, pool, PoolLoad(100)):
        decision = move.decision
        if covers(decision):
            assert pool.mode_of(decision.fault_class, decision.rung) is Mode.ACT
            assert decision.mode is Mode.ACT


@settings(max_examples=150)
@given(cases(), pools, st.sampled_from([FaultClass.UNKNOWN, FaultClass.APPLICATION]))
def test_unknown_never_acts_unless_it_may_alone_and_a_program_never_does(
    case: EntityCase, pool: PoolPolicy, of_class: FaultClass
) -> None:
    told = [replace(one, fault_class=of_class) for one in case.incidents]
    if of_class is FaultClass.UNKNOWN:
        told = [
            replace(
                one,
                evidence=tuple(replace(i, acts_alone=False, detector="ecc") for i in one.evidence),
            )
            for one in told
        ]
    moves = _decided(replace(case, incidents=tuple(told)), pool, PoolLoad(100))
    assert not any(covers(move.decision) for move in moves)


@settings(max_examples=150)
@given(cases(), pools, st.floats(0, 100))
def test_the_same_inputs_give_the_same_decision(
    case: EntityCase, pool: PoolPolicy, away: float
) -> None:
    load = PoolLoad(100, frozenset({"n1"}), away=frozenset(f"x{n}" for n in range(int(away))))
    assert _decided(case, pool, load) == _decided(case, pool, load)


@settings(max_examples=150)
@given(cases(), pools, caps, st.sampled_from(list(Breaker)))
def test_every_exclusion_has_a_reverse_that_no_guard_holds_back(
    case: EntityCase, pool: PoolPolicy, cap: Cap, breaker: Breaker
) -> None:
    out = frozenset(f"n{n}" for n in range(NODES))
    full = PoolLoad(NODES, out, breaker, away=out)
    for move in _decided(case, pool, PoolLoad(100)):
        if move.decision.phase not in LIVE_PHASES:
            continue
        ended = revoke(move.decision, "ann", "no", NOW).decision
        assert ended.phase is DecisionPhase.REVOKED
        if approvable(move.decision) is not None:
            in_force = approve(move.decision, "ann", "yes", NOW).decision
            assert revoke(in_force, "ann", "no", NOW).decision.phase is DecisionPhase.REVOKED
        well = replace(
            case, incidents=(), decisions=(move.decision,), state=EntityState.EXCLUDED,
            hold=Hold.NONE,
        )  # fmt: skip
        back = _decided(well, replace(pool, cap=cap), full)
        assert [one.decision.phase for one in back] == [DecisionPhase.LIFTED]


# interleavings


@dataclass
class Fleet:
    """Many entities of one pool, decided about in any order, by gpuwarden alone."""

    pool: PoolPolicy
    away: frozenset[str]
    jobs: dict[str, frozenset[str]]
    decisions: dict[str, Decision] = field(default_factory=dict)
    pins: dict[EntityRef, Pin] = field(default_factory=dict)
    now: float = NOW

    def __post_init__(self) -> None:
        self.new_id = counter_of("dec")

    def seat(self, node: str) -> Seat:
        return Seat(f"r{int(node[1:]) % 3}", self.jobs.get(node, frozenset()))

    def load(self) -> PoolLoad:
        document = replace(parse_policy(""), pools=(self.pool,))
        counted = Counted(frozenset(f"n{n}" for n in range(NODES)), maintained=self.away)
        return pool_loads(document, self.decisions.values(), counted, seat_of=self.seat)["default"]

    def judge(self, case: EntityCase) -> None:
        entity = case.entity
        live = (d for d in self.decisions.values() if d.entity == entity)
        pin = self.pins.get(entity)
        case = replace(
            case,
            decisions=tuple(d for d in live if d.phase in LIVE_PHASES),
            seat=self.seat(entity.node_id),
            pins=(pin,) if pin else (),
        )
        before = self.load()
        moves = decide(case, self.pool, "v1", before, self.now, self.new_id)
        self.take(moves, before, entity.node_id)
        gained = self.load().excluded_nodes - before.excluded_nodes
        if gained:
            self.check(before, entity.node_id)

    def take(self, moves: Sequence[DecisionMove], before: PoolLoad, node: str) -> None:
        folded = load_after(before, self.decisions.values(), moves, self.seat(node))
        self.decisions |= {move.decision.id: move.decision for move in moves}
        counted = self.load()
        assert folded.excluded_nodes == counted.excluded_nodes
        assert folded.seats == counted.seats
        assert folded.away >= counted.away  # a pin that is gone counts until all is counted anew

    def check(self, before: PoolLoad, node: str) -> None:
        """No limit is exceeded by what gpuwarden itself has just taken out."""
        cap, after, seat = self.pool.cap, self.load(), self.seat(node)
        assert before.breaker is Breaker.CLOSED
        assert len(after.excluded_nodes) <= cap_nodes(cap, NODES)
        if cap.max_per_rack is not None:
            racks = Counter(one.rack for one in after.seats.values())
            assert racks[seat.rack] <= cap.max_per_rack
        if cap.max_per_job is not None:
            jobs = Counter(job for one in after.seats.values() for job in one.jobs)
            assert all(jobs[job] <= cap.max_per_job for job in seat.jobs)
        assert after.in_service >= cap.min_in_service or node in before.away


steps = st.lists(
    st.tuples(
        entities,
        st.sampled_from(["fault", "fault", "fault", "well", "revoke", "move", "pin", "unpin"]),
        st.floats(0, 50000),
        st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=80)
@given(pools, st.frozensets(st.integers(0, NODES - 1), max_size=4), steps)
def test_no_limit_is_exceeded_under_any_interleaving(
    pool: PoolPolicy, away: frozenset[int], story: list[tuple[EntityRef, str, float, int]]
) -> None:
    jobs = {f"n{n}": frozenset({f"slurm:{n % 2}"}) for n in range(NODES)}
    fleet = Fleet(pool, frozenset(f"n{n}" for n in away), jobs)
    for entity, what, wait, job in story:
        fleet.now += wait
        match what:
            case "fault":
                acts = item(received_at=NOW, expires_at=fleet.now + 86400, max_rung=Rung.EVICT)
                fleet.judge(EntityCase(entity, (incident(entity, acts),)))
            case "well":
                fleet.judge(EntityCase(entity, ()))
            case "revoke":
                live = (d for d in fleet.decisions.values() if d.entity == entity)
                ended = [d for d in live if d.phase in LIVE_PHASES and d.decided_by != "pin"]
                moves = [revoke(d, "ann", "no", fleet.now) for d in ended]
                fleet.take(moves, fleet.load(), entity.node_id)
            case "move":  # what ran there runs elsewhere, and something else came
                fleet.jobs[entity.node_id] = frozenset({f"slurm:{job}"})
            case "pin":
                fleet.pins[entity] = Pin(entity, PinKind.EXCLUDE, "ann", "burnt", fleet.now)
                fleet.judge(EntityCase(entity, ()))
            case "unpin":
                fleet.pins.pop(entity, None)
                fleet.judge(EntityCase(entity, ()))
