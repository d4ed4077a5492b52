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
)
from gpuwarden_verdict.policy.document import (
    Cap,
    Decision,
    DecisionMove,
    DecisionPhase,
    PoolPolicy,
)
from gpuwarden_verdict.policy.evaluate import (
    Breaker,
    Counted,
    EntityCase,
    PoolLoad,
    cap_nodes,
    decide,
    load_after,
    pool_loads,
    revoke,
)
from gpuwarden_verdict.policy.guards import NO_SEAT
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.cases import ACT, GPU, NOW, ROOM, incident, made, one, pools
from tests.builders.verdict import counter_of, gpu_ref, node_ref


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
    silent = frozenset({"n1", "n2"})
    loads = pool_loads(document, decisions, Counted(frozenset({"n0"}) | silent, silent))
    n0 = frozenset({"n0"})
    assert loads["a"] == PoolLoad(3, n0, Breaker.OPEN, {"n0": NO_SEAT}, silent)
    assert loads["default"] == PoolLoad(0)
    half = Counted(frozenset({"n0", "n1"}), frozenset({"n1"}))
    assert pool_loads(document, [], half)["a"].breaker is Breaker.CLOSED


# properties


@settings(max_examples=100)
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
        counted = Counted(frozenset(f"n{n}" for n in range(self.nodes)))
        return pool_loads(document, self.decisions.values(), counted)["default"]

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


@settings(max_examples=80)
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
