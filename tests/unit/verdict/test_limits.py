from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.tuning.limits import (
    LimitRule,
    LimitSource,
    ScopedRule,
    Scopes,
    Threshold,
    learn,
    limits_now,
    thresholds,
)
from gpuwarden_verdict.tuning.parse import parse_tuning
from gpuwarden_verdict.tuning.rules import NO_TUNING, Tuning

GPUS = 512
HEAT = LimitRule("celsius", default=12.0, floor=6.0, ceiling=40.0, persist_s=300.0)
WHOLE = Scopes(("train/H100",), ("train",), np.zeros(GPUS, np.int64))


def seen(
    hours: float,
    spread: float,
    *,
    rule: LimitRule = HEAT,
    sick: float = 0.0,
    memory: SweepMemory | None = None,
    tuning: Tuning = NO_TUNING,
) -> SweepMemory:
    """What a fleet with normally distributed excess teaches; a share of it is always far off."""
    memory = memory or SweepMemory()
    rng = np.random.default_rng(5)
    for at in np.arange(0.0, hours * 3600.0 + 1.0, rule.persist_s):
        excess = rng.normal(0.0, spread, GPUS)
        excess[: int(sick * GPUS)] = 30.0
        values = np.exp(excess) if rule.heavy else excess
        learn(memory, tuning, "heat", rule, WHOLE, values.astype(np.float32), 1e9 + at)
    return memory


def shown(memory: SweepMemory, rule: LimitRule = HEAT, tuning: Tuning = NO_TUNING) -> Threshold:
    (threshold,) = thresholds(memory, tuning, ScopedRule("heat", rule, WHOLE))
    limits = limits_now(memory, tuning, "heat", rule, WHOLE)
    assert np.allclose(limits, threshold.limit)
    return threshold


def test_the_default_holds_until_enough_was_seen() -> None:
    one = shown(seen(1.0, 3.0))
    assert (one.limit, one.source) == (12.0, LimitSource.DEFAULT)
    assert 400 < one.entity_hours < 600
    assert shown(SweepMemory()).expected_a_day is None
    few = replace(WHOLE, of=np.full(GPUS, -1))
    assert limits_now(SweepMemory(), NO_TUNING, "heat", HEAT, few)[0] == 12.0


def test_a_quiet_fleet_stays_at_the_floor_and_a_restless_one_below_the_ceiling() -> None:
    quiet = shown(seen(3.0, 0.05))
    assert (quiet.limit, quiet.source) == (6.0, LimitSource.LEARNT)
    assert quiet.expected_a_day == pytest.approx(0.0, abs=1e-3)
    assert shown(seen(3.0, 30.0)).limit == 40.0


def test_the_limit_keeps_to_the_budget() -> None:
    memory = seen(6.0, 3.0)
    learnt = shown(memory)
    assert learnt.source is LimitSource.LEARNT
    # Of normal noise, one trial in 288,000 is beyond 4.5 deviations: 13.6; the tail is believed
    # to be heavier than that.
    assert 13.6 < learnt.limit < 25.0
    allowed = 1.0 * GPUS / 1000.0
    assert learnt.expected_a_day is not None
    assert learnt.expected_a_day <= allowed * 1.1
    later = np.random.default_rng(9).normal(0.0, 3.0, (288, GPUS))
    assert (later > learnt.limit).sum() <= 1
    generous = parse_tuning({"heat": {"budget": 100}}, ["train"])
    assert shown(seen(6.0, 3.0, tuning=generous), tuning=generous).limit < learnt.limit


def test_sick_ones_in_the_sample_hide_nobody() -> None:
    clean, soiled = shown(seen(6.0, 2.0)), shown(seen(6.0, 2.0, sick=0.02))
    assert soiled.limit < 1.8 * clean.limit


def test_a_learnt_limit_follows_slowly_and_survives_a_restart() -> None:
    memory = SweepMemory.imported(seen(6.0, 2.0).export())
    before = shown(memory).limit
    rng = np.random.default_rng(1)
    for at in np.arange(0.0, 3600.0, 300.0):
        noisy = rng.normal(0.0, 8.0, GPUS).astype(np.float32)
        learn(memory, NO_TUNING, "heat", HEAT, WHOLE, noisy, 1e9 + 7 * 3600.0 + at)
    assert before < shown(memory).limit < 1.3 * before


def test_the_policy_goes_before_what_was_learnt() -> None:
    tuning = parse_tuning({"heat": {"limit": 3.0, "pools": ["train"]}}, ["train"])
    one = shown(seen(6.0, 2.0), tuning=tuning)
    assert (one.limit, one.source) == (3.0, LimitSource.OVERRIDE)
    silent = parse_tuning({"heat": {"budget": 0}}, ["train"])
    assert shown(seen(6.0, 2.0, tuning=silent), tuning=silent).limit == HEAT.ceiling


def test_rates_of_errors_that_vary_over_decades_are_judged_by_their_orders() -> None:
    errors = LimitRule("errors", 100.0, 10.0, 1e6, persist_s=300.0, heavy=True)
    assert 10.0 < shown(seen(6.0, 1.0, rule=errors), errors).limit < 1e4
    fixed = replace(HEAT, budget=None)
    assert shown(seen(6.0, 1.0, rule=fixed), fixed).source is LimitSource.DEFAULT
