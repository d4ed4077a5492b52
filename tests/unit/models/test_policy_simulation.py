"""Two policies over one history: what each excludes, holds back and advises."""

from __future__ import annotations

from gpuwarden_models.backtest.policies import simulate_policies
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.engine.risks import NO_MODELS
from gpuwarden_verdict.policy.guards import Guard
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_verdict.policy.replay import Effect
from tests.builders.histories import Decoded, simulated

SETTING = Setting(3, 2, seed=5, interval_s=60.0)
ACTS = '[defaults]\nmode = "act"\ncap = { max_nodes = 9, max_percent = 100 }\n'
TIGHT = ACTS.replace("9", "1")


def _two_lost(frames: int) -> Decoded:
    gpus = [gpu.gpu_uuid for gpu in Simulation(SETTING).topology.gpus]
    lost = (
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[place], 120.0 + 60.0 * place) for place in (0, 2)
    )
    return simulated(SETTING, lost, frames)


def test_a_tighter_cap_holds_the_second_back_and_the_case_is_listed() -> None:
    run = simulate_policies(
        _two_lost(20), "made up", (parse_policy(ACTS), parse_policy(TIGHT)), NO_MODELS, 0.0
    )
    form = run.form()
    assert (form["recording"]["nodes"], form["recording"]["gpus"]) == (3, 6)
    effects = [[spell.stand.effect for spell in side] for side in (run.before, run.after)]
    assert effects[0].count(Effect.EXCLUDED) == 2
    assert (effects[1].count(Effect.EXCLUDED), effects[1].count(Effect.HELD_BACK)) == (1, 1)
    (case,) = form["cases"]
    assert (case["before"]["effect"], case["after"]["guard"]) == ("excluded", Guard.CAP_NODES)
    assert case["before_gpu_hours"] > 0.1
    assert form["differing"] == 1


def test_what_is_repaired_makes_room_under_the_cap() -> None:
    played = _two_lost(40)
    never, soon = (
        simulate_policies(played, "x", (parse_policy(TIGHT), parse_policy(TIGHT)), NO_MODELS, h)
        for h in (0.0, 0.25)
    )
    assert never.before == never.after  # one policy is played once
    assert sum(spell.stand.effect is Effect.EXCLUDED for spell in never.after) == 1
    assert sum(spell.stand.effect is Effect.EXCLUDED for spell in soon.after) == 2


def test_an_observed_pool_excludes_nothing() -> None:
    run = simulate_policies(
        _two_lost(12), "x", (parse_policy(ACTS), parse_policy("")), NO_MODELS, 0.0
    )
    assert {spell.stand.effect for spell in run.after} <= {Effect.OBSERVED, Effect.SUSPECT}
