"""A backtest in small: ends of jobs, boards that move, and what the score would have done."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np

from gpuwarden_models.backtest.flags import Flag
from gpuwarden_models.backtest.player import Player
from gpuwarden_models.backtest.running import backtest
from gpuwarden_models.recording_tables import JobRow
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.engine.risks import NO_MODELS
from gpuwarden_verdict.entities import FaultClass, Rung
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.policy.parse import parse_policy
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.histories import Decoded, simulated
from tests.builders.public_series import PublicHistory, Series
from tests.builders.simulated import shipped_models

START = 1_800_000_000.0
NODES = ("n1", "n2")


def temperatures(numbers: np.ndarray[tuple[int, int, int], np.dtype[np.float64]]) -> PublicHistory:
    """Two rows a minute apart: GPU-a on n1, and on n2."""
    schema = schema_for(EntityKind.GPU, ["gpu_temperature_celsius"])
    series = Series(schema, ("GPU-a", "GPU-a"), NODES, numbers)
    return PublicHistory("made up", "GPU", START, 60.0, len(numbers), (series,))


def flags_of(
    history: PublicHistory | Decoded, models: FusionModels = NO_MODELS, policy: str = ""
) -> tuple[Flag, ...]:
    return backtest(history, "made up", parse_policy(policy), models).flags


def test_jobs_that_keep_ending_badly_on_a_node_are_evidence_about_it() -> None:
    history = temperatures(np.full((60, 1, 2), 50.0))
    jobs = [
        JobRow(str(number), f"user-{number}", ("n1",), START, START + 60 * at, state, code)
        for number, at, state, code in (
            (1, 5, "FAILED", "1:0"),
            (2, 10, "NODE_FAIL", ""),
            (3, 15, "FAILED", "139"),
            (4, 20, "RUNNING", ""),
        )
    ]
    jobs[3] = replace(jobs[3], end=inf)
    assert flags_of(history) == ()
    (flag,) = flags_of(replace(history, jobs=jobs))
    assert (flag.name.kind, flag.name.entity, flag.rung) == ("node", "n1", Rung.SUSPECT)
    assert START + 15 * 60 <= flag.first_flagged_at <= START + 17 * 60
    on_both = [replace(job, nodes=NODES) for job in jobs[:1]]
    assert flags_of(replace(history, jobs=on_both)) == ()


def test_a_board_that_shows_up_under_another_node_sits_there() -> None:
    numbers = np.full((20, 1, 2), np.nan)
    numbers[:10, 0, 0], numbers[10:, 0, 1] = 50.0, 50.0
    history = temperatures(numbers)
    engine = FleetEngine(parse_policy(""))
    player = Player(engine, history)
    seen: list[str] = []
    for frame in history.frames():
        player.play(frame)
        (ref,) = engine.windows.view(EntityKind.GPU).refs
        seen.append(ref.node_id)
    assert seen == ["n1"] * 10 + ["n2"] * 10


def by_the_score(name: FaultName, ramp_s: float, severity: float) -> Flag:
    """The flag of one fault by a policy so bold that what the score may exclude, it does."""
    setting = Setting(2, 8, seed=5, interval_s=60.0)
    gpu = Simulation(setting).topology.gpus[3].gpu_uuid
    fault = ScriptedFault(name, gpu, 1200.0, ramp_s=ramp_s, severity=severity)
    played = simulated(setting, [fault], 80)
    bold = "[defaults]\nexclude_confidence = 0.3"
    flags = (f for f in flags_of(played, shipped_models(), bold) if f.name.entity == gpu)
    return next(f for f in flags if "learnt risk" in " ".join(f.reasons))


def test_what_the_score_would_have_done_stands_beside_what_its_gate_lets_it_do() -> None:
    flag = by_the_score(FaultName.STRAGGLER_CLOCK, 600.0, 1.0)
    assert (flag.rung, flag.rung_gated) == (Rung.EXCLUDE, Rung.SUSPECT)
    assert flag.first_excluded_at is not None and flag.risk > 0.42


def test_one_plane_alone_excludes_nobody_though_the_gate_is_taken_as_open() -> None:
    flag = by_the_score(FaultName.NVLINK_DEGRADATION, 6000.0, 1.5)
    assert (flag.rung, flag.first_excluded_at) == (Rung.SUSPECT, None)


def test_caps_hold_nothing_back_unless_they_are_to() -> None:
    """Nobody repairs what a backtest excludes: a cap of one would be full for ever."""
    setting = Setting(3, 2, seed=5, interval_s=60.0)
    gpus = [gpu.gpu_uuid for gpu in Simulation(setting).topology.gpus]
    lost = [
        ScriptedFault(FaultName.GPU_OFF_BUS, gpus[place], 120.0 + 60.0 * place) for place in (0, 2)
    ]
    played, one = simulated(setting, lost, 12), "[defaults]\ncap = { max_nodes = 1 }"
    assert {f.rung for f in flags_of(played, NO_MODELS, one) if f.name.entity in gpus} == {
        Rung.EXCLUDE
    }
    kept = backtest(played, "made up", parse_policy(one), NO_MODELS, keep_caps=True).flags
    second = next(f for f in kept if f.name.entity == gpus[2])
    assert (second.rung, second.held_back) == (Rung.SUSPECT, "cap_nodes")


def test_pools_of_their_own_act_too() -> None:
    setting = Setting(2, 2, seed=5, interval_s=60.0)
    gpu = Simulation(setting).topology.gpus[0].gpu_uuid
    played = simulated(setting, [ScriptedFault(FaultName.GPU_OFF_BUS, gpu, 120.0)], 8)
    policy = '[[pools]]\nname = "mine"\nnodes = ["gpu-*"]\nmode = "observe"'
    assert Rung.EXCLUDE in {f.rung for f in flags_of(played, NO_MODELS, policy)}


def test_a_leaf_switch_that_reboots_is_flagged_and_no_node_behind_it_excluded() -> None:
    setting = Setting(8, 2, seed=5, interval_s=30.0)
    leaf = Simulation(setting).topology.leaves[0]
    reboot = ScriptedFault(FaultName.LEAF_REBOOT, f"leaf:{leaf}", 1200.0, duration_s=600.0)
    flags = flags_of(simulated(setting, [reboot], 80))
    (flag,) = (one for one in flags if one.name.kind == "fabric")
    assert (flag.name.entity, flag.fault_class, flag.rung) == (
        leaf,
        FaultClass.FABRIC,
        Rung.SUSPECT,
    )
    assert flag.risk > 0.5
    assert all(one.rung < Rung.EXCLUDE for one in flags)
