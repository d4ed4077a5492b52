"""Storms of kernel lines: few events, bounded memory, and no new kind lost among them."""

from __future__ import annotations

import math
import random
import resource
import string
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwarden_agent.collectors.kernel_log import KernelLogFollower
from gpuwarden_agent.collectors.kernel_merge import (
    BURST,
    DIFFERING,
    MAX_OPEN,
    MAX_SUBJECTS,
    MAX_WORDINGS,
    WINDOW_S,
    RepeatMerger,
)
from gpuwarden_agent.sources.kernel_lines import KernelLine, KmsgMark
from gpuwarden_wire.events import Backlog, Event
from tests.builders.agent import BOOT, XID_79, event
from tests.builders.following import BOOTED, STARTED, Positions, Running, append
from tests.fakes.waiting import wait_for


class TestRepeatMerger:
    def test_a_window_closes_after_five_seconds(self) -> None:
        merger = RepeatMerger()
        assert merger.take(_at(0, "a"), 0.0) == [_at(0, "a")]
        assert merger.take(_at(1, "a"), 1.0) == []
        assert merger.due(4.9) == []
        assert [(e.id, e.count) for e in merger.due(WINDOW_S)] == [(_at(1, "a").id, 1)]
        assert merger.due(100.0) == []

    def test_a_repeat_after_the_window_is_an_event_of_its_own(self) -> None:
        merger = RepeatMerger()
        merger.take(_at(0, "a"), 0.0)
        merger.take(_at(1, "a"), 0.0)
        out = merger.take(_at(6, "a"), 0.0)  # a backlog: read at once, written 6 s later
        assert [(e.id, e.count) for e in out] == [(_at(1, "a").id, 1), (_at(6, "a").id, 1)]

    def test_messages_differ_by_address_text_and_code(self) -> None:
        merger = RepeatMerger()
        kinds = [
            _at(0, "a"),
            _at(1, "b"),
            _at(2, "a", xid=79),
            _at(3, "a", xid=48),
            _at(4, "a", pci_bus_id="0000:3b:00.0"),
        ]
        assert [e for kind in kinds for e in merger.take(kind, 0.0)] == kinds

    def test_too_many_open_windows_close_the_oldest_and_lose_no_count(self) -> None:
        merger = RepeatMerger()
        out = [*merger.take(_at(0, "first"), 0.0), *merger.take(_at(1, "first"), 0.0)]
        for number in range(MAX_OPEN + 5):
            out += merger.take(_at(2, "other", xid=number), 0.0)
        out += merger.rest()
        assert sum(e.count for e in out) == MAX_OPEN + 7
        assert merger.pending() == ()

    def test_messages_that_differ_in_numbers_share_a_budget(self) -> None:
        merger = RepeatMerger()
        faults = [_at(0, f"pid={n}, MMU Fault @ 0x7f3b_{n:08x}", xid=31) for n in range(1_000)]
        out = [one for fault in faults for one in merger.take(fault, 0.0)]
        assert out == faults[:BURST]
        (rest,) = merger.due(WINDOW_S)
        assert (rest.id, rest.text) == (faults[BURST].id, faults[BURST].text)
        assert rest.count == 1_000 - BURST
        assert rest.attributes[DIFFERING] == 1_000 - BURST - 1

    def test_the_budget_comes_back_with_time(self) -> None:
        merger = RepeatMerger()
        for number in range(BURST):
            merger.take(_at(0, f"fault {number}"), 0.0)
        assert merger.take(_at(0, "fault 100"), 0.0) == []
        after = _at(math.ceil(WINDOW_S), "fault 101")
        assert after in merger.take(after, 0.0)

    @pytest.mark.parametrize(
        "other",
        [
            {"xid": 79},
            {"pci_bus_id": "0000:3b:00.0"},
            {"text": "storm over, something else"},
            {"severity": "critical"},
            {"device": "nvme1"},
            {"family": "sxid"},
            {"backlog": Backlog.OLDER_BOOT},
            {"attributes": {"unproven": True}},
            {"attributes": {"action": "RESET_GPU"}},
            {"attributes": {"acts_alone": True}},
        ],
        ids=lambda other: next(iter(other)),
    )
    def test_a_new_kind_goes_out_at_once_in_any_storm(self, other: dict[str, Any]) -> None:
        merger = RepeatMerger()
        for number in range(1_000):
            merger.take(_at(0, f"storm {number}"), 0.0)
        new = msgspec.structs.replace(_at(0, "storm 1"), **other)
        assert new in merger.take(new, 0.0)

    def test_what_a_program_wrote_does_not_swallow_the_kernels_own_line(self) -> None:
        merger = RepeatMerger()
        merger.take(_at(0, XID_79, attributes={"unproven": True}), 0.0)
        own = _at(1, XID_79)
        assert merger.take(own, 0.0) == [own]

    def test_a_programs_name_makes_no_new_kind(self) -> None:
        merger = RepeatMerger()
        names = [string.ascii_lowercase[n % 26] * (n // 26 + 1) for n in range(300)]
        faults = [_at(0, f"pid=1, name={name}, MMU Fault", process=name) for name in names]
        assert sum(len(merger.take(fault, 0.0)) for fault in faults) == BURST

    def test_no_log_whatever_it_holds_fills_the_memory_or_loses_a_line(self) -> None:
        chance = random.Random(5)
        merger = RepeatMerger()
        out: list[Event] = []
        flood_from = 0
        for number in range(20_000):
            words = "".join(chance.choices(string.ascii_letters + " ", k=60))
            device = f"disk{chance.randrange(3_000)}" if number < 10_000 else "disk1"
            line = msgspec.structs.replace(_at(0, words, device=device), id=str(number))
            out += merger.take(line, 0.0)
            if number == 10_000:
                flood_from = len(out)
            assert len(merger._windows) <= MAX_OPEN, number
        assert len(merger._budgets) <= MAX_SUBJECTS
        assert max(map(len, merger._budgets.values())) <= MAX_WORDINGS + 1
        out += merger.rest()
        assert len(out) - flood_from < BURST * (MAX_WORDINGS + 1) + MAX_OPEN + MAX_WORDINGS
        assert sum(one.count for one in out) == 20_000
        assert len({one.id for one in out}) == len(out)


def _at(second: int, text: str, **fields: Any) -> Event:
    return event(second, **{"family": "xid", **fields, "text": text})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "kern.log"
    found.write_text("")
    return found


def xid(code: int, slot: int, text: str) -> str:
    return f"NVRM: Xid (PCI:0000:{slot:02x}:00): {code}, pid=4711, name=python, {text}"


def test_a_storm_of_100_000_lines_keeps_every_kind_and_costs_few_events(path: Path) -> None:
    storm = [xid(31, 0x3B, "MMU Fault: faulted @ 0x7f3b_1c000000")] * 90_000
    storm += [xid(31, 0x3C, f"MMU Fault: faulted @ 0x7f3b_{n:08x}") for n in range(9_800)]
    kinds = [
        (code, slot) for code in (13, 43, 48, 63, 64, 74, 79, 94, 95, 119) for slot in range(20)
    ]
    for number, (code, slot) in enumerate(kinds):
        storm.insert(number * 499, xid(code, slot, f"number {number}"))
    with Running(path, Positions()) as run:
        append(path, *storm)
        wait_for(
            lambda: sum(e.count for e in list(run.positions.events)) + run.pending() >= 100_000,
            timeout_s=100,
        )
    found = run.positions.events
    seen = {(e.xid, e.pci_bus_id) for e in found}
    assert {(code, f"0000:{slot:02x}:00.0") for code, slot in kinds} < seen
    assert sum(e.count for e in found) == 100_000
    assert len({e.id for e in found}) == len(found)
    # Each kind once, both floods at their budget, and a few for each window that it took.
    assert len(found) < 400


class Overflowing:
    """A reader whose ring loses lines at each read, faster than anybody reads."""

    caught_up = True

    def __init__(self) -> None:
        self.reads = 0
        self.lost = 0
        self.told = 0

    def read(self, timeout_s: float) -> list[KernelLine]:
        self.reads += 1
        self.lost += 3
        return []

    def mark(self) -> KmsgMark:
        return KmsgMark(BOOT, self.reads)

    def take_lost(self) -> int:
        lost, self.lost = self.lost, 0
        self.told += lost
        return lost

    def close(self) -> None:
        self.reads = -1


def test_a_ring_that_keeps_overflowing_is_told_now_and_then(path: Path) -> None:
    follower = KernelLogFollower(
        path, path.parent, BOOT, STARTED, Positions(), 1_000_000, booted_at=BOOTED
    )
    reader, emitted = Overflowing(), list[Event]()
    for tick in range(1_000):  # 100 s
        reader.read(0.0)
        follower._tell_lost(reader, emitted.extend, tick / 10)
    lost = [e.attributes["lines_lost"] for e in emitted if "lines_lost" in e.attributes]
    assert (lost[0], lost[1:]) == (3, [150] * 19)
    assert reader.told + reader.lost == 3_000


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_burst_of_4_gb_costs_bounded_memory(
    path: Path, record_property: Callable[[str, object], None]
) -> None:
    """64 files of 64 MiB, each rotated away while it is read."""
    benign = "usb 1-1: new high-speed USB device number %d using xhci_hcd " + "x" * 900
    fault = "NVRM: Xid (PCI:0000:ff:00): 31, pid=%d, name=python, MMU Fault @ 0x7f3b " + "y" * 900
    lines = [(benign if n % 16 else fault) % n for n in range(65_536)]
    block = "".join(line[:1_023] + "\n" for line in lines)
    began, before, most = time.monotonic(), resident_kib(), 0
    with Running(path, Positions()) as run:
        for number in range(64):
            with path.open("a") as file:
                file.write(block)
                file.write(xid(79, number, "GPU has fallen off the bus.") + "\n")
            slot = f"0000:{number:02x}:00.0"
            wait_for(partial(_was_found, run, slot), timeout_s=600)
            most = max(most, resident_kib())
            path.rename(path.with_name("kern.log.1"))
            path.write_text("")
    found = run.positions.events
    faults = 64 * len([n for n in range(65_536) if n % 16 == 0])
    assert sum(e.count for e in found if e.xid == 31) == faults
    assert sum(e.count for e in found if e.xid == 79) == 64
    assert most - before < 100_000, "KiB"
    took_s = time.monotonic() - began
    record_property(
        "figure",
        f"4 GiB of kernel lines: {took_s:.0f} s, {most - before} KiB more resident, "
        f"{len(found)} events",
    )


def _was_found(run: Running, slot: str) -> bool:
    return any(e.pci_bus_id == slot for e in list(run.positions.events))


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024
