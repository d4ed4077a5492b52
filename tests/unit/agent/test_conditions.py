from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.transport.refusal_watch import OVER_AFTER_S, RefusalWatch
from gpuwarden_agent.transport.tally import DeliveryTally
from gpuwarden_wire.events import Event, EventKind
from tests.builders.agent import BOOT

TROUBLE, RECOVERED = EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED


class Rig:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 1000.0
        self.remembered: str | None = None
        self.board = ConditionBoard(
            self.events.extend, BOOT, lambda: self.now, lambda names: self.remember(names)
        )
        self.tally = DeliveryTally()
        self.watch = RefusalWatch(
            self.tally, self.board, Path("/var/lib/gpuwarden-agent"), lambda: self.now
        )

    def remember(self, names: str) -> None:
        self.remembered = names

    def told(self) -> list[tuple[EventKind, object]]:
        told: list[tuple[EventKind, object]] = [
            (event.kind, event.attributes.get("reason")) for event in self.events
        ]
        self.events.clear()
        return told

    def refuse(self, count: int, code: str = "sequence_conflict") -> None:
        for _ in range(count):
            self.tally.note_refused(code, self.now)
        self.watch.look()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_trouble_is_told_once_and_its_end_once(rig: Rig) -> None:
    rig.board.trouble("nfs", "slow")
    rig.board.trouble("nfs", "slower")
    rig.board.fine("nfs")
    rig.board.fine("nfs")
    assert rig.told() == [(TROUBLE, "slow"), (RECOVERED, None)]


def test_trouble_of_an_earlier_run_is_taken_back_at_the_start(rig: Rig) -> None:
    rig.board.trouble("GPU 0000:1b:00.0", "bound to vfio-pci")
    rig.board.trouble("nfs", "slow")
    rig.board.fine("nfs")
    after = Rig()
    after.board.end_former(rig.remembered)
    assert [(e.kind, e.attributes["source"]) for e in after.events] == [
        (RECOVERED, "GPU 0000:1b:00.0")
    ]
    assert after.remembered == "[]"


@pytest.mark.parametrize("remembered", [None, "[]", "", "{", "[1]"])
def test_nothing_readable_is_nothing_to_take_back(rig: Rig, remembered: str | None) -> None:
    rig.board.end_former(remembered)
    assert rig.told() == []


def test_refused_batches_are_told_at_each_power_of_ten_with_the_mend(rig: Rig) -> None:
    rig.watch.look()
    assert rig.told() == []
    rig.refuse(1)
    (event,) = rig.events
    assert event.attributes["source"] == "delivery"
    assert "Another machine sends with a copy of this spool" in event.text
    assert "delete its spool folder (/var/lib/gpuwarden-agent" in event.text
    assert rig.told() == [(TROUBLE, "batches refused: sequence_conflict")]
    rig.refuse(8)
    assert rig.told() == []
    rig.refuse(3)
    assert rig.told() == [(TROUBLE, "10 batches refused, or more: sequence_conflict")]
    assert rig.tally.refusals()["sequence_conflict"].count == 12


def test_refusals_are_over_when_none_came_for_a_while(rig: Rig) -> None:
    rig.refuse(1)
    rig.now += OVER_AFTER_S - 1
    rig.watch.look()
    rig.now += 1
    rig.watch.look()
    rig.watch.look()
    assert rig.told()[1:] == [(RECOVERED, None)]


def test_another_refusal_says_where_to_look(rig: Rig) -> None:
    rig.refuse(1, "invalid_batch")
    assert "/var/lib/gpuwarden-agent/rejected" in rig.events[0].text
