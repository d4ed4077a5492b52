"""Would-be exclusions: from what a score says at each look to the bound that the gate wants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuwarden_server.learning.labels.domain import Label, Source, Truth
from gpuwarden_server.learning.shadow.domain import (
    QUIET_S,
    Opinion,
    Outcome,
    Role,
    ShadowWatch,
    Tally,
    TriedModel,
    WouldExclude,
    gate_trials,
    new_run,
    outcome_of,
    tally_of,
    trial_of,
)
from gpuwarden_server.learning.shadow.limits import TriedLimit
from gpuwarden_server.learning.shadow.speaking import ScoreVoices, Surroundings
from gpuwarden_server.learning.watching import ChallengerTurns
from gpuwarden_verdict.entities import EntityState, FaultClass, Rung, Severity
from gpuwarden_verdict.fusion.gate import TrialKind, TrialRun
from gpuwarden_verdict.incidents.domain import EvidenceItem
from gpuwarden_verdict.policy.document import PoolPolicy, Rule
from gpuwarden_verdict.policy.parse import BUILT_IN, parse_policy, pool_of
from gpuwarden_verdict.signals import Contribution, Plane, Risk
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item
from tests.builders.verdict import START, counter_of, gpu_ref

CALM = Surroundings()
DAY_S = 86_400.0
HORIZON_S = DAY_S
GPU = gpu_ref(0, 0)
TRIED = TriedModel(EntityKind.GPU, "v1", "abc", 0.8)
SAYS = Opinion(GPU, 0.9, "memory", ("counters", "peers"))
EXCLUSION = WouldExclude("shadow-1", "v1", GPU, START, None, 0.9, "memory", ())


class Watched:
    """A watch and the time."""

    def __init__(self) -> None:
        self.watch = ShadowWatch(new_run(TRIED, Role.PROMOTED, START))
        self.now = START
        self.new_id = counter_of("shadow")

    def look(self, after_s: float, *opinions: Opinion, healthy: int = 0) -> list[WouldExclude]:
        self.now += after_s
        return self.watch.look(opinions, healthy, Role.PROMOTED, 0.8, self.new_id, self.now)


def test_it_counts_once_grows_with_the_probability_and_ends_when_it_was_quiet_for_long() -> None:
    fleet = Watched()
    (begun,) = fleet.look(0.0, SAYS)
    assert (begun.since, begun.until, begun.planes) == (START, None, ("counters", "peers"))
    assert fleet.look(20.0, SAYS) == []
    (grown,) = fleet.look(5.0, replace(SAYS, probability=0.97, fault_class="bus"))
    assert (grown.id, grown.since) == (begun.id, begun.since)
    assert (grown.probability, grown.fault_class) == (0.97, "bus")
    last = fleet.now
    assert fleet.look(QUIET_S - 10.0) == []
    assert fleet.look(5.0, SAYS) == [], "it is the same one that says it again"
    assert fleet.look(QUIET_S - 1.0) == []
    (ended,) = fleet.look(1.0)
    assert ended.id == begun.id
    assert ended.until == last + QUIET_S - 5.0


def test_healthy_time_counts_only_while_somebody_looks() -> None:
    fleet = Watched()
    fleet.look(60.0, healthy=1000)
    assert fleet.watch.run.healthy_days == 0.0, "before the start nobody looked"
    fleet.look(60.0, healthy=1000)
    assert fleet.watch.run.healthy_days == pytest.approx(1000 * 60 / DAY_S)
    fleet.look(30 * DAY_S, healthy=1000)
    assert fleet.watch.run.healthy_days == pytest.approx(1000 * 660 / DAY_S)


def test_who_was_a_challenger_a_moment_ago_is_not_credited_with_the_time_it_rested() -> None:
    fleet = Watched()
    for role, credited_s in (
        (Role.CHALLENGER, 0.0),
        (Role.PROMOTED, 0.0),
        (Role.PROMOTED, 300.0),
    ):
        fleet.now += 300.0
        fleet.watch.look((), 1000, role, 0.8, fleet.new_id, fleet.now)
        assert fleet.watch.run.healthy_days == pytest.approx(1000 * credited_s / DAY_S)


def test_what_went_on_before_a_restart_goes_on() -> None:
    fleet = Watched()
    fleet.watch.resume([EXCLUSION])
    assert fleet.look(10.0, SAYS) == []
    (ended,) = [one for _ in range(2) for one in fleet.look(QUIET_S)]
    assert ended.id == EXCLUSION.id
    assert fleet.watch.close() == []


@pytest.mark.parametrize(
    ("labels", "after_s", "outcome"),
    [
        ([], 10.0, Outcome.PENDING),
        ([], HORIZON_S, Outcome.FALSE),
        ([(600.0, Truth.HARDWARE)], 700.0, Outcome.NEEDED),
        ([(-600.0, Truth.HARDWARE)], 700.0, Outcome.NEEDED),
        ([(-2 * DAY_S, Truth.HARDWARE)], HORIZON_S, Outcome.FALSE),
        ([(HORIZON_S + 1.0, Truth.HARDWARE)], HORIZON_S + 2.0, Outcome.FALSE),
        ([(600.0, Truth.FALSE_ALARM)], 700.0, Outcome.FALSE),
        ([(600.0, Truth.APPLICATION), (900.0, Truth.HARDWARE)], 999.0, Outcome.NEEDED),
        ([(600.0, Truth.UNCERTAIN)], HORIZON_S, Outcome.HIDDEN),
        ([(600.0, Truth.UNKNOWN)], 700.0, Outcome.PENDING),
        ([(600.0, Truth.UNKNOWN)], HORIZON_S, Outcome.FALSE),
    ],
)
def test_outcomes(labels: list[tuple[float, Truth]], after_s: float, outcome: Outcome) -> None:
    known = [(START + at, Label(truth, Source.NONE, "", "x", START)) for at, truth in labels]
    assert outcome_of(EXCLUSION, known, HORIZON_S, START + after_s) is outcome


def test_what_is_not_settled_counts_as_false() -> None:
    many = [Outcome.NEEDED, Outcome.FALSE, Outcome.PENDING, Outcome.HIDDEN]
    tally = tally_of(many)
    assert tally == Tally(1, 1, 2)
    run = replace(new_run(TRIED, Role.PROMOTED, START), healthy_days=60_000.0)
    trial = trial_of(run, tally)
    assert trial.false_actions == 3
    assert (trial.model_digest, trial.exclude_confidence) == ("abc", 0.8)
    clean = trial_of(run, Tally(needed=4))
    assert clean.bound_per_gpu_day == pytest.approx(3.0 / 60_000.0, rel=0.01)


def test_what_shadow_got_wrong_is_held_against_a_backtest() -> None:
    def trial(kind: TrialKind, days: float, false: int) -> TrialRun:
        return TrialRun(kind, "v1", days, false, START, "abc", 0.8)

    shadow = trial(TrialKind.SHADOW, 100.0, 2)
    backtest = trial(TrialKind.BACKTEST, 60_000.0, 0)
    best = gate_trials({TrialKind.SHADOW: shadow, TrialKind.BACKTEST: backtest})
    assert best == (replace(backtest, false_actions=2), shadow)
    assert gate_trials({TrialKind.SHADOW: shadow}) == (shadow,)
    assert gate_trials({}) == ()


def test_a_run_goes_on_with_the_same_file_at_no_lower_limit() -> None:
    run = new_run(TRIED, Role.PROMOTED, START)
    assert run.goes_on_with(replace(TRIED, exclude_confidence=0.9))
    assert not run.goes_on_with(replace(TRIED, exclude_confidence=0.5))
    assert not run.goes_on_with(replace(TRIED, digest="def"))
    watch = ShadowWatch(run)
    watch.look((), 0, Role.PROMOTED, 0.9, counter_of("shadow"), START)
    assert watch.run.exclude_confidence == 0.9, "so high that not all was counted at 0.8"


def test_the_limit_is_the_highest_of_the_pools_that_the_fleet_is_in() -> None:
    text = '[defaults]\nexclude_confidence = 0.95\n[[pools]]\nname = "a"\nnodes = ["a*"]\n'
    policy = parse_policy(f"{text}exclude_confidence = 0.6\n")
    limit = TriedLimit(lambda: policy, lambda node: pool_of(policy, node), lambda: 1)
    assert limit.over(["a1", "a2"]) == 0.6
    assert limit.over(["a1", "b1"]) == 0.95
    assert limit.over([]) == 0.95


def risk_of(probability: float, planes: int = 2, **changes: Any) -> Risk:
    lines = tuple(
        Contribution(f"f{n}", plane, 1.0, 2.0)
        for n, plane in enumerate((Plane.COUNTERS, Plane.PEERS)[:planes])
    )
    risk = Risk(GPU, probability, FaultClass.MEMORY, lines, "v1", "hash", START)
    return replace(risk, **({"operating_point": 0.5} | changes))


class Spoken:
    """What one score says, looked at each 100 s."""

    def __init__(self, around: Surroundings = CALM, pool: PoolPolicy = BUILT_IN) -> None:
        self.voices, self.fleet, self.around, self.pool = ScoreVoices(), Watched(), around, pool

    def look(self, probability: float, planes: int = 2, **changes: Any) -> bool:
        """Whether a would-be exclusion begins."""
        now = self.fleet.now + 100.0
        says = [risk_of(probability, planes, **changes)]
        opinions = self.voices.hear(says, lambda _: self.around, lambda _: self.pool, now)
        return any(one.until is None for one in self.fleet.look(100.0, *opinions))

    def excludes(self, probability: float, planes: int = 2, **changes: Any) -> bool:
        """Whether one begins while it says the same for longer than it takes to settle."""
        return any(self.look(probability, planes, **changes) for _ in range(8))


@pytest.mark.parametrize(
    ("probability", "planes", "would"),
    [(0.9, 2, True), (0.9, 1, False), (0.7, 2, False)],
)
def test_it_would_exclude_by_the_policys_confidence_and_two_planes(
    probability: float, planes: int, would: bool
) -> None:
    assert Spoken().excludes(probability, planes) is would
    assert not Spoken().excludes(probability, planes, operating_point=0.95)


def test_where_limits_differ_by_class_the_lowest_is_tried_for_all() -> None:
    """A trial speaks for one limit; what it says too much of keeps the gate closed for longer."""
    sooner = Rule(classes=(FaultClass.THERMAL,), rungs=(Rung.EXCLUDE,), confidence=0.6)
    assert Spoken(pool=replace(BUILT_IN, rules=(sooner,))).excludes(0.7)
    policy = parse_policy(
        '[[defaults.rules]]\nclasses = ["thermal"]\nrungs = ["exclude"]\nconfidence = 0.6\n'
    )
    limit = TriedLimit(lambda: policy, lambda node: pool_of(policy, node), lambda: 1)
    assert limit.over(["a1"]) == 0.6


def test_it_waits_for_the_settle_time_and_a_flicker_never_counts() -> None:
    begun = [(score := Spoken()).look(0.9)] + [score.look(0.9) for _ in range(8)]
    assert begun == [False, False, False, True, *[False] * 5], "300 s"
    flickers = Spoken()
    assert not any(flickers.look(0.9) or flickers.look(0.2) for _ in range(8))


def test_a_score_stands_until_it_clears_as_the_judges_evidence_does() -> None:
    score = Spoken()
    assert not score.look(0.85)
    assert [score.look(0.45) for _ in range(8)].count(True) == 1
    assert score.voices.entities() == [GPU], "it is scored on"
    score.look(0.2)
    assert score.voices.entities() == []
    falls = Spoken()
    falls.look(0.85)
    assert not falls.excludes(0.6), "it says less before it would have settled"
    waits = Spoken()
    assert not waits.excludes(0.6)
    assert waits.look(0.85), "its evidence had settled long ago"


ADVICE = item(
    detector="peers",
    score=0.6,
    acts_alone=False,
    plane=Plane.EVENTS,
    max_rung=Rung.SUSPECT,
    fault_class=FaultClass.MEMORY,
)


def beside(*evidence: EvidenceItem, **changes: Any) -> Spoken:
    """A score beside an incident of the class that it suspects."""
    held = incident(GPU, *evidence, fault_class=FaultClass.MEMORY, **changes)
    return Spoken(Surroundings(incidents=(held,)))


def test_a_score_adds_up_with_what_else_stands() -> None:
    assert beside(ADVICE).excludes(0.55)
    assert not Spoken().excludes(0.55)
    own = replace(ADVICE, detector="learned_score")
    assert not beside(own).excludes(0.55), "it never adds to itself"
    assert beside(replace(own, score=0.2)).excludes(0.9), "nor does what another model said count"
    elsewhere = incident(GPU, replace(ADVICE, fault_class=FaultClass.NVLINK))
    other = Spoken(Surroundings(incidents=(replace(elsewhere, fault_class=FaultClass.NVLINK),)))
    assert not other.excludes(0.55), "of another incident, as for the judge"


def test_what_the_judge_would_not_act_on_is_no_would_be_exclusion() -> None:
    """What a rule decides is the rule's; a place, and a person's word, acquit."""
    assert not beside(replace(ADVICE, score=0.9, max_rung=Rung.EXCLUDE, acts_alone=True)).excludes(
        0.9
    )
    assert not beside(ADVICE, parent_id="inc-place").excludes(0.9)
    acquitted = {"acquitted_until": START + DAY_S, "acquitted_severity": Severity.CRITICAL}
    assert not beside(ADVICE, **acquitted).excludes(0.9)


def test_on_probation_the_first_new_symptom_suffices() -> None:
    tried = Surroundings(EntityState.PROBATION)
    assert Spoken(tried).excludes(0.55)
    assert not Spoken(tried).excludes(0.45)


def test_a_challenger_is_credited_with_the_time_between_two_sweeps_that_looked() -> None:
    turns, model = ChallengerTurns(), ("gpu", "v1")
    credited, looked = [], []
    for sweep in range(100):
        began = 5.0 * sweep
        if turns.due(began):
            looked.append(sweep)
            if turns.looked_before(model):
                credited.append(sweep)
            turns.note(frozenset({model}), began, took_s=1.0)
    assert looked == [0, 1, 21, 22, 42, 43, 63, 64, 84, 85], "2 % of the time"
    assert credited == [1, 22, 43, 64, 85]
    assert not turns.looked_before(("gpu", "v2"))
