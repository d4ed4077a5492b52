"""The lemon list: who is on it, because of what, and how often such entries were right."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.ledger import Mark, PartLedger, part_name
from gpuwarden_verdict.lemons import LemonList, TrackRecord, lemon_list
from gpuwarden_verdict.slow_rank import Because
from gpuwarden_wire.metrics import EntityKind

DAY = 86_400.0
NOW = 1000 * DAY


class Shelf:
    """A ledger, and what is in the fleet."""

    def __init__(self) -> None:
        self.ledger = PartLedger()
        self.present: dict[str, EntityRef] = {}

    def node(self, name: str) -> EntityRef:
        return self.present.setdefault(name, EntityRef(EntityKind.NODE, name, name))

    def gpu(self, name: str, node: str) -> EntityRef:
        return self.present.setdefault(name, EntityRef(EntityKind.GPU, name, node))

    def fails(self, name: str, node: str, *days_ago: float, mark: Mark = Mark.BUS) -> None:
        """A GPU fails; it goes on record of the part and of its node."""
        gpu, home = self.gpu(name, node), self.node(node)
        for days in days_ago:
            at = NOW - days * DAY
            self.ledger.note(part_name(gpu), gpu, mark, at)
            self.ledger.note(part_name(home), home, Mark.GPU, at)

    def goes(self, name: str) -> None:
        del self.present[name]

    def lemons(self) -> LemonList:
        return lemon_list(self.ledger.reading(), self.present.values(), NOW)

    def named(self) -> list[tuple[str, Because]]:
        return [(one.entity.key, one.because) for one in self.lemons().lemons]


def test_parts_go_by_their_recent_events_and_tell_them() -> None:
    shelf = Shelf()
    shelf.fails("once", "n1", 5)
    shelf.fails("often", "n2", 3, 20)
    shelf.fails("long-ago", "n3", 95)
    shelf.gpu("sound", "n1")
    assert shelf.named() == [("often", Because.PART), ("once", Because.PART)]
    first = shelf.lemons().lemons[0]
    assert [(one.at, one.fault) for one in first.events] == [
        (NOW - 3 * DAY, "bus"),
        (NOW - 20 * DAY, "bus"),
    ]


def test_a_place_needs_two_parts_and_comes_after_all_parts() -> None:
    shelf = Shelf()
    shelf.fails("a", "n1", 30, 2)
    assert shelf.named() == [("a", Because.PART)], "one part's events are the part's"
    shelf.fails("b", "n1", 10)
    assert shelf.named() == [("a", Because.PART), ("b", Because.PART), ("n1", Because.PLACE)]
    shelf.goes("a")
    shelf.goes("b")
    assert shelf.named() == [("n1", Because.PLACE)], "the place keeps what befell parts in it"
    assert len(shelf.lemons().lemons[0].events) == 3


def test_nodes_and_ports_are_parts_too_and_other_marks_list_nobody() -> None:
    shelf = Shelf()
    node = shelf.node("n1")
    port = shelf.present.setdefault("n1/mlx5_0", EntityRef(EntityKind.NIC, "n1/mlx5_0", "n1"))
    shelf.ledger.note(part_name(node), node, Mark.HOST, NOW - DAY)
    shelf.ledger.note(part_name(port), port, Mark.NIC, NOW - 2 * DAY)
    gpu = shelf.gpu("g", "n1")
    shelf.ledger.note(part_name(gpu), gpu, Mark.EXCLUSION, NOW - DAY)
    shelf.ledger.note(part_name(gpu), gpu, Mark.FAILED_JOB, NOW - DAY)
    assert shelf.named() == [("n1", Because.PART), ("n1/mlx5_0", Because.PART)]


def test_the_track_record_counts_entries_that_are_old_enough() -> None:
    shelf = Shelf()
    shelf.fails("right", "n1", 300, 250)  # listed at 300, followed after 50 days
    shelf.fails("wrong", "n2", 200)  # listed at 200, nothing came
    shelf.fails("twice", "n3", 300, 120)  # listed at 300 and again at 120: both wrong
    shelf.fails("young", "n4", 30, 20)
    shelf.fails("burst", "n5", 100, 99.9)  # one fault, told of twice
    shelf.goes("right")  # gone, yet its entry counts
    record = shelf.lemons().parts
    assert (record.entries, record.followed, record.young) == (5, 1, 1)
    assert record.precision == pytest.approx(0.2)
    assert record.interval == pytest.approx((0.0362, 0.6245), abs=1e-4)


def test_places_have_a_record_of_their_own() -> None:
    shelf = Shelf()
    shelf.fails("a", "n1", 300)
    shelf.fails("b", "n1", 290)  # listed from here
    shelf.fails("a", "n1", 270)
    shelf.fails("c", "n2", 300)
    shelf.fails("d", "n2", 290)  # listed, and nothing came
    record = shelf.lemons().places
    assert (record.entries, record.followed, record.young) == (2, 1, 0)


def test_what_is_too_young_is_unknown_yet() -> None:
    shelf = Shelf()
    shelf.fails("a", "n1", 3)
    assert shelf.lemons().parts == TrackRecord(0, 0, 1)
    assert (shelf.lemons().parts.precision, shelf.lemons().parts.interval) == (None, None)
    empty = lemon_list(PartLedger().reading(), [], NOW)
    assert (empty.lemons, empty.parts) == ((), TrackRecord(0, 0, 0))
