"""What raises in a sweep is told by its name, once, and all else goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pytest

from gpuwarden_verdict.context import NodePlace
from gpuwarden_verdict.detectors import detect_clears, detect_sweep, scoped_rules
from gpuwarden_verdict.detectors.reading import level_signal
from gpuwarden_verdict.engine.book import Book, Kept
from gpuwarden_verdict.engine.chronicle import Chronicle
from gpuwarden_verdict.engine.directory import Directory
from gpuwarden_verdict.engine.facts import FleetFacts, Patience
from gpuwarden_verdict.engine.failures import Failure
from gpuwarden_verdict.engine.loads import PoolBook
from gpuwarden_verdict.engine.placing import FleetPlacing
from gpuwarden_verdict.engine.presence import Presence
from gpuwarden_verdict.engine.risks import ModelRisks
from gpuwarden_verdict.engine.sweep import Sweeper
from gpuwarden_verdict.entities import EntityRef, FaultClass, Severity
from gpuwarden_verdict.features import FeatureScene
from gpuwarden_verdict.incidents.domain import Incident
from gpuwarden_verdict.incidents.kin import Kin
from gpuwarden_verdict.incidents.lifecycle import advance
from gpuwarden_verdict.memory import I64, SweepMemory
from gpuwarden_verdict.signals import Risk, Signal
from gpuwarden_verdict.windows import Columns, FleetSnapshot, KindView
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import Fleet, counter_of, gpu_ref

PORT = EntityRef(EntityKind.NIC, "n0/mlx5_0/1", "n0")
BROKEN = ["nic_receive_peers", "nic_transmit_peers"]


class NoRails(SweepMemory):
    """Fails who asks for the names of ports: those who compare ports of jobs."""

    def codes(
        self, view: KindView, name: str, words: Mapping[str, str] | Callable[[str], str]
    ) -> I64:
        if name.startswith("rails of"):
            raise RuntimeError("a bug in one detector")
        return super().codes(view, name, words)


class Torn(dict[str, NodePlace]):
    """Places that cannot be looked through."""

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("a bug in the search for common causes")


class NoScore(ModelRisks):
    """A score that cannot be made."""

    def score(
        self,
        scene: FeatureScene,
        watched: Collection[EntityRef],
        signals: Sequence[Signal],
        now: float,
    ) -> list[Risk]:
        raise RuntimeError("a bug in the score")


class House:
    """One node with a remapped row that failed, a port, and what is told of both."""

    def __init__(self, memory: SweepMemory | None = None, score: ModelRisks | None = None) -> None:
        self.fleet = Fleet(nodes=1)
        if memory is not None:
            self.fleet.memory = memory
        traffic = {"nic_received_bytes_total": 0.0, "nic_transmitted_bytes_total": 0.0}
        self.fleet.tell([PORT], **traffic)
        self.fleet.tell([gpu_ref(0, 3)], gpu_row_remap_failure=1.0)
        self.fleet.tell([gpu_ref(0, 3)], at=self.fleet.now + 5.0, gpu_row_remap_failure=1.0)
        self.fleet.now += 6.0
        directory = Directory(lambda node: True)
        placing = FleetPlacing(self.fleet.policy, directory)
        self.facts = FleetFacts(directory, self, self, Patience(60.0, 3600.0))
        self.book = Book(Kept(incidents=slow_ports(self.fleet.now)))
        pools = PoolBook(placing, self.book, self.facts.census)
        risks = ModelRisks() if score is None else score
        self.sweeper = Sweeper(
            *(self, self.facts, self.book, pools, risks, self.fleet.memory), Chronicle(directory)
        )
        self.failures: list[Failure] = []

    def presence(self, node_id: str) -> Presence | None:
        return None

    def now(self) -> float:
        return self.fleet.now

    def monotonic(self) -> float:
        return self.fleet.now

    def snapshot(self, columns: Columns) -> FleetSnapshot:
        return self.fleet.state.snapshot()

    def look(self) -> list[str]:
        """Detectors that say something in one sweep."""
        found = self.sweeper.look(self.fleet.now, self.failures.append).findings.values()
        return [s.detector for one in found for step in one.steps for s in step.signals]

    def told(self) -> list[tuple[str, str]]:
        return [(failure.stage, failure.entity) for failure in self.failures]


def slow_ports(now: float) -> list[Incident]:
    """Incidents that the comparison of ports is asked to clear."""
    signals = [
        level_signal(
            PORT,
            now,
            detector=name,
            version=1,
            fault_class=FaultClass.NIC,
            score=0.3,
            severity=Severity.WARNING,
            sentence="slow",
            numbers={},
            thresholds={},
        )
        for name in BROKEN
    ]
    return [move.incident for move in advance((), signals, (), now, counter_of("inc"))]


def test_a_detector_that_raises_leaves_the_others_signals_and_is_told_once_a_sweep() -> None:
    house = House(NoRails())
    assert house.look() == ["row_remap_failure"]
    assert house.told() == [("sweep", name) for name in BROKEN], "both in detect and in clears"
    assert house.look() == ["row_remap_failure"]
    assert len(house.failures) == 4


def test_each_question_to_a_detector_raises_unless_somebody_is_told() -> None:
    fleet = House(NoRails()).fleet
    context, asked = fleet.fleet_context(), slow_ports(fleet.now)
    told: list[str] = []

    def note(name: str, error: Exception) -> None:
        told.append(name)

    with pytest.raises(RuntimeError, match="one detector"):
        detect_sweep(fleet.state, context, fleet.now)
    with pytest.raises(RuntimeError, match="one detector"):
        detect_clears(fleet.state, context, asked, fleet.now)
    assert len(detect_sweep(fleet.state, context, fleet.now, note)) == 1
    assert detect_clears(fleet.state, context, asked, fleet.now, note) == []
    assert told == [*BROKEN, *BROKEN]
    assert scoped_rules(fleet.state, context, fleet.now, note)


def test_common_causes_that_cannot_be_looked_for_leave_the_former_ones() -> None:
    house = House()
    house.book.kin = former = Kin(echoes={"inc-9": "inc-8"})
    house.facts.follow_places(lambda nodes: Torn(n0=NodePlace(rack="r1")))
    assert house.look() == ["row_remap_failure"]
    assert house.told() == [("sweep", "kin_finder")]
    assert house.book.kin is former


def test_a_score_that_cannot_be_made_leaves_the_rules() -> None:
    house = House(score=NoScore())
    assert house.look() == ["row_remap_failure"]
    assert house.told() == [("sweep", "learned_score")]
