"""What keeps an exclusion once its cause has cleared: never a score that may not exclude."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_verdict.entities import EntityState, Rung, Severity
from gpuwarden_verdict.incidents.domain import EvidenceItem
from gpuwarden_verdict.policy.document import Decision, DecisionPhase
from gpuwarden_verdict.policy.evaluate import EntityCase
from gpuwarden_verdict.policy.judgement import LEARNED_DETECTOR
from gpuwarden_verdict.signals import Persistence, Plane
from tests.builders.cases import ACT, GPU, NOW, incident, item, made, one

SCORE = item(
    detector=LEARNED_DETECTOR,
    sentence="learnt risk 66%",
    score=0.66,
    severity=Severity.WARNING,
    persistence=Persistence.LEVEL,
    acts_alone=False,
    max_rung=Rung.SUSPECT,
    plane=Plane.HISTORY,
    received_at=NOW - 400,
)
FAULT = item(persistence=Persistence.BOOT)


def excluded_for(*evidence: EvidenceItem) -> tuple[EntityCase, Decision]:
    held = incident(GPU, *evidence)
    decision = made(EntityCase(GPU, (held,)))
    assert (decision.phase, decision.rung) == (DecisionPhase.IN_FORCE, Rung.EXCLUDE)
    return EntityCase(GPU, (held,), (decision,), state=EntityState.EXCLUDED), decision


def later(case: EntityCase, *evidence: EvidenceItem) -> EntityCase:
    return replace(case, incidents=(replace(case.incidents[0], evidence=evidence),))


@pytest.mark.parametrize("score", [0.4, 0.66, 0.99])
def test_a_score_that_may_not_exclude_holds_no_exclusion_once_the_dwell_is_over(
    score: float,
) -> None:
    case, decision = excluded_for(FAULT, SCORE)
    told = replace(SCORE, score=score)
    dwelling = later(case, replace(FAULT, cleared_at=NOW - ACT.dwell_s + 1), told)
    assert one(dwelling) is None, "the reboot has to prove itself first"
    over = one(later(case, replace(FAULT, cleared_at=NOW - ACT.dwell_s), told))
    assert over is not None
    assert (over.id, over.phase) == (decision.id, DecisionPhase.LIFTED)


def test_other_evidence_holds_it_and_so_does_a_score_that_may_exclude() -> None:
    case, _ = excluded_for(FAULT, SCORE)
    cleared = replace(FAULT, cleared_at=NOW - ACT.dwell_s)
    other = replace(SCORE, detector="temperature_peers")
    assert one(later(case, cleared, SCORE, other)) is None
    assert one(later(case, cleared, replace(SCORE, max_rung=Rung.EXCLUDE))) is None


@pytest.mark.parametrize(
    ("rule", "by"),
    [
        (replace(SCORE, detector="slow_peers", score=0.6, plane=Plane.PEERS), "score"),
        (FAULT, "rule"),
    ],
)
def test_it_is_the_scores_decision_where_no_rule_asks_for_so_much(
    rule: EvidenceItem, by: str
) -> None:
    """Advice of a rule may add to the score; what neither would do alone, the score did."""
    score = replace(SCORE, score=0.55, max_rung=Rung.EXCLUDE, severity=Severity.ERROR)
    decision = made(EntityCase(GPU, (incident(GPU, score, rule),)))
    assert (decision.rung, decision.decided_by) == (Rung.EXCLUDE, by)
