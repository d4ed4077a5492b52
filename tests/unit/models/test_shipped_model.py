"""The shipped model in the demo's story, on fleets that it never saw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_models.surroundings import LIFELONG
from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import detect_sweep
from gpuwarden_verdict.detectors.learned import detect_risk
from gpuwarden_verdict.entities import FaultClass
from gpuwarden_verdict.features import feature_table
from gpuwarden_verdict.fusion import fuse_suspects
from gpuwarden_verdict.fusion.predict import log_odds, probability
from gpuwarden_verdict.policy.parse import BUILT_IN
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import scene_of, shipped_model, shipped_models

TRAINING_SEEDS = (31, 32, 33, 34, 35, 36, 37, 38, 41, 42, 43, 44)
SEEDS = (102, 104, 107)
assert set(TRAINING_SEEDS).isdisjoint(SEEDS)


@dataclass
class Watched:
    """A simulated fleet of 16 nodes x 8 GPUs, scored at every frame, as the server would."""

    simulation: Simulation
    replay: Replay
    models: dict[str, str]

    @classmethod
    def of(cls, seed: int, interval_s: float = 2.0) -> Watched:
        simulation = Simulation(Setting(16, 8, seed=seed, interval_s=interval_s))
        model = simulation.setting.parameters.gpu.model
        models = {gpu.gpu_uuid: model for gpu in simulation.topology.gpus}
        return cls(simulation, Replay(), models)

    def step(self) -> np.ndarray:
        """Feed one frame and score all GPUs, in the topology's order."""
        frame = self.simulation.next_frame()
        self.replay.feed(frame)
        table = feature_table(EntityKind.GPU, scene_of(self.replay.state), frame.at)
        scores = probability(log_odds(shipped_model(), table.matrix))
        row_of = {ref.key: row for row, ref in enumerate(table.refs)}
        return scores[[row_of[gpu.gpu_uuid] for gpu in self.simulation.topology.gpus]]

    def rule_signals(self) -> list[str]:
        """Entities that any rule of the sweep speaks about now."""
        context = FleetContext(models=self.models)
        found = detect_sweep(self.replay.state, context, self.simulation.now)
        return [signal.entity.key for signal in found]

    def busy_gpu(self) -> int:
        """A GPU whose job does not pause for the next minutes."""
        load = self.simulation.next_frame().tables[0].column("gpu_utilization_ratio")
        return int(np.flatnonzero(load > 0.8)[13])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_score_names_the_overheating_gpu_long_before_any_rule_and_no_other(seed: int) -> None:
    watched = Watched.of(seed)
    sick = watched.busy_gpu()
    gpu = watched.simulation.topology.gpus[sick].gpu_uuid
    for _ in range(10):
        watched.step()
    onset = watched.simulation.now
    watched.simulation.inject(ScriptedFault(FaultName.SLOW_OVERHEATING, gpu, at_s=0.0, ramp_s=30.0))
    named_at, ruled_at, highest_other = None, np.inf, 0.0
    for _ in range(120):
        scores = watched.step()
        if named_at is None and scores[sick] >= shipped_model().operating_point:
            named_at = watched.simulation.now
        highest_other = max(highest_other, float(np.delete(scores, sick).max()))
        ruled = watched.rule_signals()
        assert set(ruled) <= {gpu}, "no rule names another one"
        ruled_at = min(ruled_at, watched.simulation.now if ruled else np.inf)
    assert named_at is not None and named_at - onset <= 100.0
    assert scores[sick] >= shipped_model().operating_point
    assert highest_other < 0.3
    assert ruled_at - named_at >= 30.0, (ruled_at - onset, named_at - onset)
    scene = scene_of(watched.replay.state)
    risks = fuse_suspects(shipped_models(), scene, [], [], watched.simulation.now)
    (risk,) = risks
    assert risk.entity.key == gpu and risk.fault_class is FaultClass.THERMAL
    signal = detect_risk(risk, watched.simulation.now, may_exclude=False)
    assert signal is not None and "temperature" in signal.sentence


def test_no_score_rests_on_what_a_part_counted_in_all_its_life() -> None:
    """Recordings begin with new parts; a fleet's sound parts have counted for years."""
    for model in shipped_models().values():
        splits = np.unique(model.trees.feature[~model.trees.leaf]).tolist()
        names = {model.features.names[place] for place in splits}
        assert names and not {name for name in names if name.endswith(LIFELONG)}


@pytest.mark.parametrize("rack", ["*", "gpu-0006"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_hot_aisle_raises_nobody(seed: int, rack: str) -> None:
    watched, calm = (Watched.of(seed, interval_s=10.0) for _ in range(2))
    watched.simulation.inject(
        ScriptedFault(FaultName.HOT_AISLE, rack, at_s=60.0, ramp_s=300.0, severity=1.2)
    )
    limit = shipped_model().operating_point
    for _ in range(240):
        raised, anyway = watched.step() >= limit, calm.step() >= 0.8 * limit
        assert not (raised & ~anyway).any(), "who has errors of its own is raised without it too"


def test_a_power_cap_and_a_burst_raise_nobody() -> None:
    watched = Watched.of(SEEDS[0], interval_s=10.0)
    watched.simulation.inject(ScriptedFault(FaultName.POWER_CAP, "gpu-0004", 60.0))
    watched.simulation.inject(ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0001", 120.0))
    watched.simulation.inject(
        ScriptedFault(FaultName.MISSING_SCRAPES, "gpu-0002", 200.0, duration_s=300.0)
    )
    raised_s = longest_s = np.zeros(len(watched.simulation.topology.gpus))
    for _ in range(120):
        raised_s = np.where(watched.step() >= shipped_model().operating_point, raised_s + 10.0, 0.0)
        longest_s = np.maximum(longest_s, raised_s)
    assert longest_s.max() < BUILT_IN.score_settle_s / 2, "no longer than the judge waits by far"


def test_a_failed_remap_is_suspect_and_forgotten_after_repair() -> None:
    watched = Watched.of(SEEDS[1])
    uuids = [gpu.gpu_uuid for gpu in watched.simulation.topology.gpus]
    watched.simulation.inject(
        ScriptedFault(FaultName.ROW_REMAP_FAILURE, uuids[40], 20.0, ramp_s=30.0)
    )
    for _ in range(60):
        scores = watched.step()
    assert scores[40] > shipped_model().operating_point
    watched.simulation.repair(uuids[40])
    for _ in range(3):
        scores = watched.step()
    assert scores[40] < 0.3
