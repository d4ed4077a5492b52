"""From scores and signals to risks: floor, veto, class, and who gets a risk at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuwarden_models.replay import Replay
from gpuwarden_models.simulator.simulation import Setting, Simulation
from gpuwarden_models.simulator.story import FaultName, ScriptedFault
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.fusion import fuse_risks, fuse_suspects
from gpuwarden_verdict.fusion.predict import logit
from gpuwarden_verdict.signals import Persistence, Plane, Risk, Signal
from gpuwarden_wire.metrics import EntityKind
from tests.builders.simulated import scene_of, shipped_model, shipped_models


class Fleet:
    """Two simulated nodes after a minute, in the windows."""

    def __init__(self, *faults: ScriptedFault, frames: int = 30) -> None:
        self.simulation = Simulation(Setting(2, 8, seed=21, interval_s=2.0), faults)
        self.replay = Replay()
        for frame in self.simulation.frames(frames):
            self.replay.feed(frame)
        self.now = self.simulation.now

    def gpu(self, number: int) -> EntityRef:
        part = self.simulation.topology.gpus[number]
        node = self.simulation.topology.nodes[part.node]
        return EntityRef(EntityKind.GPU, part.gpu_uuid, node)

    def signal(self, number: int, **facts: object) -> Signal:
        plain = Signal(
            entity=self.gpu(number),
            fault_class=FaultClass.MEMORY,
            score=0.9,
            severity=Severity.CRITICAL,
            plane=Plane.EVENTS,
            sentence="",
            detector="xid",
            detector_version=1,
            observed_at=self.now,
            expires_at=self.now + 60.0,
            persistence=Persistence.EVENT,
        )
        return replace(plain, **facts)  # type: ignore[arg-type]  # a builder takes any field

    def risk(self, number: int, *signals: Signal) -> Risk:
        wanted = [self.gpu(number)]
        (risk,) = fuse_risks(
            shipped_models(), scene_of(self.replay.state), wanted, signals, self.now
        )
        return risk


def check_sum(risk: Risk) -> None:
    total = sum(line.log_odds for line in risk.contributions)
    assert total == pytest.approx(logit(risk.probability), abs=1e-6)


def lines(risk: Risk) -> dict[str, float]:
    return {line.name: line.log_odds for line in risk.contributions}


def test_a_healthy_gpu_has_a_low_risk_of_no_class() -> None:
    risk = Fleet().risk(3)
    check_sum(risk)
    assert risk.probability < 0.1 and risk.fault_class is FaultClass.UNKNOWN
    assert {"rule_floor", "veto"}.isdisjoint(lines(risk))
    assert risk.model_version == shipped_model().version


def test_a_rule_that_acts_alone_is_a_floor_with_a_line_of_its_own() -> None:
    fleet = Fleet()
    risk = fleet.risk(3, fleet.signal(3, acts_alone=True, score=0.97))
    check_sum(risk)
    assert risk.probability == pytest.approx(0.97)
    assert lines(risk)["rule_floor"] > 0
    assert risk.fault_class is FaultClass.MEMORY


@pytest.mark.parametrize(
    "facts",
    [
        {"acts_alone": False},
        {"acts_alone": True, "echo": True},
        {"acts_alone": True, "expires_at": 0.0},
        {"acts_alone": True, "detector": "learned_score"},
    ],
)
def test_no_floor_without_a_live_rule_that_acts_alone(facts: dict[str, object]) -> None:
    fleet = Fleet()
    risk = fleet.risk(3, fleet.signal(3, **facts))
    check_sum(risk)
    assert "rule_floor" not in lines(risk) and risk.probability < 0.1


def test_the_floor_of_one_gpu_is_not_its_neighbours() -> None:
    fleet = Fleet()
    assert fleet.risk(4, fleet.signal(3, acts_alone=True)).probability < 0.1


def test_a_storm_of_programs_is_vetoed_and_says_so() -> None:
    burst = ScriptedFault(FaultName.APPLICATION_BURST, "gpu-0001", at_s=20.0)
    fleet = Fleet(burst)
    storm = [
        fleet.signal(
            number,
            application_possible=True,
            fault_class=FaultClass.APPLICATION,
            severity=Severity.WARNING,
            score=0.3,
        )
        for number in range(8)
    ]
    risk = fleet.risk(3, *storm)
    check_sum(risk)
    assert risk.fault_class is FaultClass.APPLICATION
    assert risk.probability < 0.1
    events = sum(
        max(line.log_odds, 0.0) for line in risk.contributions if line.plane is Plane.EVENTS
    )
    assert lines(risk)["veto"] == pytest.approx(-events)
    alone = fleet.risk(3, storm[3])
    assert "veto" not in lines(alone)


def test_a_storm_does_not_acquit_a_gpu_with_hardware_evidence() -> None:
    fleet = Fleet()
    facts = {"application_possible": True, "score": 0.3}
    signals = [fleet.signal(number, **facts) for number in range(8)]
    signals.append(fleet.signal(3, acts_alone=True, score=0.95))
    risk = fleet.risk(3, *signals)
    assert "veto" not in lines(risk) and risk.probability == pytest.approx(0.95)
    assert "veto" in lines(fleet.risk(4, *signals))


def test_wear_of_memory_is_named_by_its_features() -> None:
    fleet = Fleet()
    gpu = fleet.gpu(5).key
    fleet = Fleet(ScriptedFault(FaultName.ECC_WEAR, gpu, at_s=2.0, ramp_s=20.0))
    risk = fleet.risk(5)
    check_sum(risk)
    assert risk.probability > 0.5 and risk.fault_class is FaultClass.MEMORY


def test_only_suspects_watched_and_signalled_gpus_get_a_risk() -> None:
    fleet = Fleet()
    fleet = Fleet(ScriptedFault(FaultName.GPU_OFF_BUS, fleet.gpu(5).key, at_s=20.0))
    state, signal = fleet.replay.state, fleet.signal(9)
    risks = fuse_suspects(shipped_models(), scene_of(state), [fleet.gpu(1)], [signal], fleet.now)
    assert {risk.entity for risk in risks} == {fleet.gpu(1), fleet.gpu(5), fleet.gpu(9)}
    for risk in risks:
        check_sum(risk)


def test_what_was_never_read_or_is_not_scored_gets_no_risk() -> None:
    fleet = Fleet()
    stranger = EntityRef(EntityKind.GPU, "GPU-unknown", "gpu-0001")
    fleet.replay.state.register(stranger)
    disk = EntityRef(EntityKind.DISK, "gpu-0001/nvme0n1", "gpu-0001")
    wanted = [stranger, disk]
    scene = scene_of(fleet.replay.state)
    assert fuse_risks(shipped_models(), scene, wanted, [], fleet.now) == []
    assert fuse_risks(shipped_models(), scene_of(Replay().state), wanted, [], fleet.now) == []
