"""May the score act alone? The gate names what is missing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from gpuwarden_verdict.entities import EntityRef, FaultClass, Rung
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun, score_gate, supporting_planes
from gpuwarden_verdict.policy.document import Cap, Mode, PoolPolicy, Rule
from gpuwarden_verdict.signals import Contribution, Plane, Risk
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import shipped_model


def pool(*, score_may_exclude: bool = True) -> PoolPolicy:
    return PoolPolicy(
        name="train",
        nodes=("*",),
        mode=Mode.ACT,
        cap=Cap(max_nodes=2, max_percent=10.0),
        exclude_confidence=0.8,
        settle_s=30.0,
        dwell_s=600.0,
        exclusion_ttl_s=86_400.0,
        score_may_exclude=score_may_exclude,
    )


def risk(**by_plane: float) -> Risk:
    return Risk(
        entity=EntityRef(EntityKind.GPU, "GPU-1", "n1"),
        probability=0.9,
        fault_class=FaultClass.THERMAL,
        contributions=(
            Contribution("intercept", None, float("nan"), -3.0),
            *(Contribution(name, Plane(name), 1.0, odds) for name, odds in by_plane.items()),
        ),
        model_version=shipped_model().version,
        schema_hash="",
        scored_at=0.0,
    )


def trial(*, gpu_days: float = 60_000.0, false_actions: int = 0, **changes: Any) -> TrialRun:
    model = shipped_model()
    tried = TrialRun(
        kind=TrialKind.SHADOW,
        model_version=model.version,
        gpu_days=gpu_days,
        false_actions=false_actions,
        recorded_at=0.0,
        model_digest=model.digest,
        exclude_confidence=0.8,
    )
    return replace(tried, **changes)


def test_the_gate_opens_when_nothing_is_missing() -> None:
    gate = score_gate(shipped_model(), risk(peers=2.0, counters=1.0), pool(), [trial()])
    assert gate.open and gate.missing == ()


def test_each_missing_thing_is_named() -> None:
    gate = score_gate(
        shipped_model(), risk(peers=4.0, counters=0.1), pool(score_may_exclude=False), ()
    )
    assert not gate.open
    policy, run, planes = gate.missing
    assert "score_may_exclude" in policy and "train" in policy
    assert shipped_model().version in run
    assert "rests on: peers" in planes


def test_a_trial_of_another_model_does_not_count() -> None:
    gate = score_gate(shipped_model(), None, pool(), [trial(model_version="gpu-other")])
    assert len(gate.missing) == 1 and "no backtest or shadow run" in gate.missing[0]


def test_a_trial_of_another_file_of_that_name_or_at_a_higher_limit_does_not_count() -> None:
    assert len(shipped_model().digest) == 64
    other = score_gate(shipped_model(), None, pool(), [trial(model_digest="0" * 64)])
    assert len(other.missing) == 1 and "another file of that name" in other.missing[0]
    mild = score_gate(shipped_model(), None, pool(), [trial(exclude_confidence=0.95)])
    assert mild.missing == (
        f"the shadow run of model {shipped_model().version} counted exclusions from a confidence of"
        " 0.95 on, pool train excludes from 0.8: try it at that",
    )
    assert score_gate(shipped_model(), None, pool(), [trial(exclude_confidence=0.5)]).open


def test_a_rule_that_excludes_one_class_sooner_wants_a_trial_at_that() -> None:
    sooner = Rule(classes=(FaultClass.THERMAL,), rungs=(Rung.EXCLUDE,), confidence=0.5)
    later = replace(sooner, confidence=0.95)
    asks = replace(pool(), rules=(sooner,))
    assert "excludes from 0.5" in score_gate(shipped_model(), None, asks, [trial()]).missing[0]
    assert score_gate(shipped_model(), None, asks, [trial(exclude_confidence=0.5)]).open
    assert score_gate(shipped_model(), None, replace(pool(), rules=(later,)), [trial()]).open


def test_one_trial_that_misses_nothing_suffices() -> None:
    mild, own = trial(gpu_days=90_000.0, exclude_confidence=0.95), trial(kind=TrialKind.BACKTEST)
    assert score_gate(shipped_model(), None, pool(), [mild, own]).open


def test_a_short_trial_bounds_too_little() -> None:
    gate = score_gate(shipped_model(), None, pool(), [trial(gpu_days=1000.0)])
    assert "0.003" in gate.missing[0]


def test_without_a_model_the_gate_is_shut() -> None:
    assert not score_gate(None, None, pool(), [trial()]).open


@pytest.mark.parametrize(
    ("events", "upper"),
    [(0, 2.9957), (1, 4.7439), (5, 10.5130), (20, 29.0620)],  # textbook Poisson bounds, 95 %
)
def test_the_bound_is_the_exact_poisson_bound(events: int, upper: float) -> None:
    bound = trial(gpu_days=10.0, false_actions=events).bound_per_gpu_day
    assert bound == pytest.approx(upper / 10.0, rel=1e-3)


def test_a_large_count_is_bounded_as_the_normal_law_has_it() -> None:
    bound = trial(gpu_days=1.0, false_actions=1_000_000).bound_per_gpu_day
    assert bound == pytest.approx(1_000_000 + 1.6449 * 1000.0, rel=1e-5)


def test_the_judge_does_not_wait_longer_for_a_trial_with_many_false_exclusions() -> None:
    """It asks for each risk of each sweep; a trial may say a million."""

    def cpu_s(false_actions: int) -> float:
        tried, begun = trial(false_actions=false_actions), time.process_time()
        for _ in range(100):
            assert score_gate(shipped_model(), None, pool(), [tried]).open is (false_actions == 0)
        return time.process_time() - begun

    few = cpu_s(0)
    assert cpu_s(1000) < 50.0 * few + 0.5


def test_no_days_bound_nothing() -> None:
    assert trial(gpu_days=0.0).bound_per_gpu_day == float("inf")


def test_planes_that_lower_the_risk_do_not_support_it() -> None:
    assert set(supporting_planes(risk(peers=1.0, counters=-2.0, events=0.4))) == {Plane.PEERS}
