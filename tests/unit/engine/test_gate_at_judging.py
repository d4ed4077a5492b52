"""A score that could exclude when it spoke counts as advice once its gate is closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.domain import Findings
from gpuwarden_verdict.engine.facts import FleetFacts, Patience
from gpuwarden_verdict.engine.fleet_engine import ids_in_order
from gpuwarden_verdict.engine.judge import Judge, NodeStanding
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.placing import FleetPlacing
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.engine.risks import ModelRisks
from gpuwarden_verdict.engine.sweep import Sweeper
from gpuwarden_verdict.entities import Contact, FaultClass, Rung, Severity
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun
from gpuwarden_verdict.incidents.domain import EvidenceItem, Incident
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.policy.case import EntityCase, Hold
from gpuwarden_verdict.policy.document import Decision, DecisionPhase
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_verdict.signals import Persistence, Plane
from gpuwarden_verdict.windows import Columns, FleetSnapshot, FleetState
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import GPU, NOW, incident, item, made
from tests.builders.simulated import shipped_model
from tests.builders.verdict import gpu_ref

ALLOWS = '[defaults]\nmode = "act"\nscore_may_exclude = true\ncap = { max_percent = 100 }'
FORBIDS = ALLOWS.replace("true", "false")
MODEL = shipped_model()
MODELS = {EntityKind.GPU: MODEL}
TRIED = TrialRun(TrialKind.SHADOW, MODEL.version, 60_000.0, 0, NOW, MODEL.digest, 0.8)
TRIALS = {EntityKind.GPU: (TRIED,)}
SCORE = item(
    detector=LEARNED_DETECTOR,
    sentence="learnt risk 95%",
    score=0.95,
    severity=Severity.ERROR,
    persistence=Persistence.LEVEL,
    acts_alone=False,
    max_rung=Rung.EXCLUDE,
    event_ids=(),
    plane=Plane.COUNTERS,
    model=MODEL.version,
    received_at=NOW - 400.0,
)
WEAK_RULE = replace(
    SCORE,
    detector="gpu_slow_peers",
    score=0.7,
    severity=Severity.WARNING,
    plane=Plane.PEERS,
    model="",
)
OPEN = ModelRisks(MODELS, TRIALS)
CLOSED = {
    "no trial": (ALLOWS, ModelRisks(MODELS)),
    "a lower limit": (ALLOWS + "\nexclude_confidence = 0.5", OPEN),
    "another file": (ALLOWS, ModelRisks({EntityKind.GPU: replace(MODEL, digest="0")}, TRIALS)),
    "policy": (FORBIDS, OPEN),
    "no model": (ALLOWS, ModelRisks()),
    "another model": (ALLOWS, ModelRisks({EntityKind.GPU: replace(MODEL, version="next")}, TRIALS)),
}


class Bench:
    """A judge of one GPU that was told this evidence 100 s ago, and its sweep."""

    def __init__(
        self,
        policy: str,
        risks: ModelRisks,
        *evidence: EvidenceItem,
        excluded: bool = False,
        others: Sequence[Incident] = (),
    ) -> None:
        held = incident(GPU, *evidence)
        decision = made(EntityCase(GPU, (held,))) if excluded else None
        decisions = [] if decision is None else [decision]
        self.book = Book(Kept(incidents=[held, *others], decisions=decisions))
        directory = Directory(lambda node: True)
        placing = FleetPlacing(parse_policy(policy), directory)
        facts = FleetFacts(directory, self, self, Patience(60.0, 3600.0))
        pools = PoolBook(placing, self.book, facts.census)
        standing = NodeStanding(Contact.LIVE, Hold.NONE)
        self.judge = Judge(self.book, pools, lambda node: standing, ids_in_order(), risks)
        chronicle = Chronicle(directory)
        self.sweeper = Sweeper(self, facts, self.book, pools, risks, SweepMemory(), chronicle)

    def presence(self, node_id: str) -> Presence | None:
        return None

    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return NOW

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        return FleetState().snapshot()

    def decided(self) -> Decision | None:
        moves = self.judge.reassess(Findings(GPU), NOW).decision_moves
        assert len(moves) <= 1
        return moves[0].decision if moves else None

    def taken_back(self) -> list[str]:
        """Why the sweep says that something is over."""
        found = self.sweeper.look(NOW).findings.values()
        return [r.reason for one in found for step in one.steps for r in step.recoveries]


def test_an_open_gate_lets_it_exclude_and_hold() -> None:
    decision = Bench(ALLOWS, OPEN, SCORE).decided()
    assert decision is not None
    assert (decision.rung, decision.phase) == (Rung.EXCLUDE, DecisionPhase.IN_FORCE)
    assert Bench(ALLOWS, OPEN, SCORE, excluded=True).decided() is None, "it holds"


@pytest.mark.parametrize("why", CLOSED)
def test_what_it_said_before_its_gate_closed_is_advice_and_holds_nothing(why: str) -> None:
    advice = Bench(*CLOSED[why], SCORE).decided()
    assert advice is not None
    assert (advice.rung, advice.phase) == (Rung.SUSPECT, DecisionPhase.PROPOSED)
    ended = Bench(*CLOSED[why], SCORE, excluded=True).decided()
    assert ended is not None and ended.phase is DecisionPhase.LIFTED


@pytest.mark.parametrize("why", CLOSED)
def test_its_gravity_lends_no_weight_to_a_mere_warning(why: str) -> None:
    """A warning and a score at 0.7 and 0.95 would exclude were the score's severity kept."""
    decision = Bench(*CLOSED[why], SCORE, WEAK_RULE).decided()
    assert decision is not None and decision.rung is Rung.SUSPECT


def test_a_rule_beside_it_holds_an_exclusion_as_ever() -> None:
    policy, risks = CLOSED["no model"]
    rule = item(fault_class=FaultClass.BUS)
    assert Bench(policy, risks, rule, SCORE, excluded=True).decided() is None


def test_what_a_model_said_that_judges_no_more_is_taken_back() -> None:
    assert Bench(ALLOWS, OPEN, SCORE).taken_back() == []
    assert Bench(FORBIDS, OPEN, SCORE).taken_back() == [], "its advice stands"
    for why in ("no model", "another model"):
        assert Bench(*CLOSED[why], SCORE, WEAK_RULE).taken_back() == [
            "the model that said so judges no more"
        ]
    assert Bench(*CLOSED["no model"], WEAK_RULE).taken_back() == []


@pytest.mark.parametrize("why", [None, *CLOSED])
def test_a_score_excuses_the_rest_of_its_job_only_while_its_gate_is_open(why: str | None) -> None:
    """What it said as a fault of hardware would else make every program's error its echo."""
    case = (ALLOWS, OPEN) if why is None else CLOSED[why]
    code = item(
        detector="xid:31",
        fault_class=FaultClass.APPLICATION,
        application_possible=True,
        acts_alone=False,
        job="slurm:7",
    )
    rank = incident(gpu_ref(1, 0), code)
    bench = Bench(*case, replace(SCORE, job="slurm:7", fault_class=FaultClass.BUS), others=[rank])
    bench.sweeper.look(NOW)
    assert set(bench.book.kin.echoes) == ({rank.id} if why is None else set())
