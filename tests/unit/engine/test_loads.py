"""What was decided in one pass counts for the rest of it, whatever else is decided of that node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.placing import FleetPlacing
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.policy.case import EntityCase
from gpuwarden_verdict.policy.document import Decision, DecisionMove, DecisionPhase
from gpuwarden_verdict.policy.guards import Counted
from gpuwarden_verdict.policy.parse import parse_policy
from tests.builders.cases import GPU, NOW, incident, item, made
from tests.builders.verdict import gpu_ref

GPUS = [gpu_ref(node, gpu) for node in range(3) for gpu in range(2)]
NODES = frozenset(ref.node_id for ref in GPUS)
EXCLUSION = made(EntityCase(GPU, (incident(GPU, item()),)))


def _decision(entity: EntityRef, phase: DecisionPhase) -> Decision:
    return replace(EXCLUSION, id=f"dec-{entity.key}", entity=entity, phase=phase)


def _pools() -> PoolBook:
    placing = FleetPlacing(parse_policy(""), Directory(lambda node: True))
    return PoolBook(placing, Book(Kept()), lambda: Counted(NODES))


@given(st.lists(st.tuples(st.sampled_from(GPUS), st.sampled_from(DecisionPhase)), max_size=12))
def test_a_node_is_out_while_any_of_its_gpus_is(
    steps: list[tuple[EntityRef, DecisionPhase]],
) -> None:
    pools, held = _pools(), dict[str, Decision]()
    for entity, phase in steps:
        decision = _decision(entity, phase)
        held[decision.id] = decision
        pools.fold(entity.node_id, (DecisionMove(decision, None, "told", "gpuwarden", NOW),))
        out = {d.entity.node_id for d in held.values() if covers(d)}
        assert pools.load(entity.node_id).excluded_nodes == out


def test_a_count_by_the_book_forgets_what_was_not_committed() -> None:
    pools = _pools()
    decision = _decision(GPUS[0], DecisionPhase.IN_FORCE)
    pools.fold(decision.entity.node_id, (DecisionMove(decision, None, "told", "gpuwarden", NOW),))
    pools.recount()
    assert not pools.load(decision.entity.node_id).excluded_nodes
