"""GPUs that exporters name no more: advice after some minutes, and never where an agent counts."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors.gpu_unread import LONG_S, GpuUnreadDetector
from gpuwarden_verdict.entities import EntityRef, Rung
from gpuwarden_verdict.memory import SweepMemory
from gpuwarden_verdict.signals import Signal
from gpuwarden_wire.batches import MissingKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.verdict import Fleet, gpu_ref, node_ref

DETECTOR = GpuUnreadDetector()


class Exporters:
    """Two nodes of four GPUs, read by exporters each half minute."""

    def __init__(self) -> None:
        self.fleet = Fleet(nodes=2, gpus=4)
        self.memory = SweepMemory()
        self.silent: frozenset[str] = frozenset()
        self.expected = {"n0": 4, "n1": 4}

    def read(self, gpus: Sequence[EntityRef], seconds: float = 0.0) -> list[Signal]:
        """Those are read for so long; what is said at the end of it."""
        said: list[Signal] = []
        for _ in range(round(seconds / 30.0) + 1):
            self.fleet.now += 30.0
            self.fleet.tell(gpus, gpu_temperature_celsius=50.0)
            said = DETECTOR.detect(self.fleet.state, self.context(), self.fleet.now)
        return said

    def context(self) -> FleetContext:
        return FleetContext(
            gpus_expected=self.expected, silent_nodes=self.silent, memory=self.memory
        )

    def cleared(self, ref: EntityRef) -> bool:
        state, now = self.fleet.state, self.fleet.now
        return bool(DETECTOR.clears(state, self.context(), [ref], now))


ALL = [gpu_ref(node, gpu) for node in range(2) for gpu in range(4)]
REST = [ref for ref in ALL if ref != gpu_ref(1, 2)]


def test_a_gpu_whose_series_end_is_named_after_some_minutes_and_until_it_is_read() -> None:
    house = Exporters()
    assert house.read(ALL, 600) == []
    assert house.read(REST, LONG_S - 60) == []
    assert not house.cleared(gpu_ref(1, 2))
    (said,) = house.read(REST, 180)
    assert said.entity == gpu_ref(1, 2)
    assert said.max_rung is Rung.SUSPECT and "3 of 4" in said.sentence
    assert house.read(ALL) == [] and house.cleared(gpu_ref(1, 2))


def test_a_scrape_that_breaks_off_is_nothing() -> None:
    house = Exporters()
    house.read(ALL, 600)
    for _ in range(5):
        assert house.read(REST, 120) == []
        assert house.read(ALL, 30) == []


def test_a_gpu_that_was_never_read_is_its_nodes() -> None:
    house = Exporters()
    (said,) = house.read(REST, LONG_S + 60)
    assert said.entity == gpu_ref(1, 2), "known, if only by name"
    house = Exporters()
    house.expected["n0"] = 5
    (said,) = house.read(ALL, LONG_S + 60)
    assert said.entity == node_ref(0) and "4 of 5" in said.sentence
    house.expected["n0"] = 4
    assert house.read(ALL) == [] and house.cleared(node_ref(0))


def test_a_node_that_nobody_hears_of_or_whose_agent_counts_has_no_unread_gpu() -> None:
    house = Exporters()
    house.read(ALL, 60)
    house.silent = frozenset({"n1"})
    assert house.read(REST[:4], 900) == []
    house = Exporters()
    house.fleet.tell([node_ref(1)], node_gpus_visible=3.0)
    house.fleet.tell([gpu_ref(0, 0)], gpu_present=1.0)
    assert house.read(REST[1:], 900) == []
    house = Exporters()
    house.expected = {}
    assert house.read(REST, 900) == []


def test_a_node_whose_agent_counts_now_is_clear_while_it_is_heard() -> None:
    house = Exporters()
    house.expected["n0"] = 5
    house.read(ALL, LONG_S + 60)
    assert not house.cleared(node_ref(0))
    house.fleet.tell([node_ref(0)], node_gpus_visible=4.0)
    assert house.read(ALL) == []
    house.silent = frozenset({"n0"})
    assert not house.cleared(node_ref(0))
    house.silent = frozenset()
    assert house.cleared(node_ref(0))
    house.fleet.tell([node_ref(0)], node_gpus_visible=MissingKind.UNAVAILABLE)
    assert not house.cleared(node_ref(0)), "its agent does not count now"


def test_a_board_that_was_replaced_is_clear_with_its_node() -> None:
    house = Exporters()
    house.read(ALL, 60)
    house.read(REST, LONG_S + 60)
    assert not house.cleared(gpu_ref(1, 2))
    new = EntityRef(EntityKind.GPU, "GPU-new", "n1")
    house.fleet.state.register(new)
    assert house.read([*REST, new], 60) == []
    assert house.cleared(gpu_ref(1, 2))
    house.silent = frozenset({"n1"})
    assert not house.cleared(gpu_ref(1, 2))


def test_a_boot_does_not_make_a_node_whole() -> None:
    house = Exporters()
    house.expected["n0"] = 5
    house.read(ALL, LONG_S + 60)
    house.fleet.tell([node_ref(0)], node_uptime_seconds=10.0)
    assert not house.cleared(node_ref(0))
