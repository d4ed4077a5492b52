from __future__ import annotations

from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_wire.events import Event, EventKind
from tests.builders.agent import BOOT

TROUBLE, RECOVERED = EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED


class Told:
    """Events and facts that outlast a board, as the spool's do."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.facts: dict[str, str] = {}

    def board(self) -> ConditionBoard:
        return ConditionBoard(
            self.events.extend,
            BOOT,
            recall=self.facts.get,
            remember=self.facts.__setitem__,
        )

    def take(self) -> list[tuple[EventKind, object]]:
        told: list[tuple[EventKind, object]] = [
            (event.kind, event.attributes["source"]) for event in self.events
        ]
        self.events.clear()
        return told


def test_trouble_of_an_earlier_run_is_over_when_a_later_one_sees_it_end() -> None:
    told = Told()
    first = told.board()
    first.trouble("nvml", "no_library")
    first.trouble("nic", "io_error")
    assert told.take() == [(TROUBLE, "nvml"), (TROUBLE, "nic")]
    second = told.board()
    second.fine("host")
    second.fine("nvml")
    second.fine("nvml")
    assert told.take() == [(RECOVERED, "nvml")]
    second.trouble("nic", "io_error")
    assert told.take() == [(TROUBLE, "nic")]
    third = told.board()
    third.fine("nvml")
    third.fine("nic")
    assert told.take() == [(RECOVERED, "nic")]
    assert told.board().troubles() == {}


def test_trouble_of_a_part_that_is_no_more_is_over() -> None:
    told = Told()
    told.board().trouble("check:gemm", "no_such_file")
    told.take()
    board = told.board()
    board.drop_all_but(["nvml", "check:disk"])
    assert told.take() == [(RECOVERED, "check:gemm")]
    board.drop_all_but([])
    assert told.take() == []


def test_a_memory_that_cannot_be_read_is_none() -> None:
    for text in ("no json", "{}", "[1, null]"):
        told = Told()
        told.facts["troubles"] = text
        told.board().drop_all_but([])
        assert told.take() == []
