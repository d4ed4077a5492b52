from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.maintenance import (
    AgentNote,
    MaintenanceKeeper,
    Order,
    OrderUnusable,
    RunFolder,
    started_ticks,
)
from gpuwarden_agent.run_files import uptime_s
from gpuwarden_wire.events import Event, EventKind
from tests.builders.agent import BOOT

TROUBLE, RECOVERED = EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED


class Users:
    """Device users that do as they are told."""

    def __init__(self) -> None:
        self.paused = False
        self.holding: list[str] = []

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def held(self) -> list[str]:
        return self.holding


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder = RunFolder(folder)
        self.users = Users()
        self.events: list[Event] = []
        self.board = ConditionBoard(self.events.extend, BOOT)
        self.clock = 100.0
        self.keeper = MaintenanceKeeper(
            self.folder, BOOT, self.users, self.board, monotonic=lambda: self.clock
        )

    def paused(self) -> bool:
        return self.users.paused

    def look(self) -> list[EventKind]:
        self.clock += 1.0
        before = len(self.events)
        self.keeper.look()
        return [event.kind for event in self.events[before:]]

    def note(self) -> AgentNote:
        note = self.folder.note()
        assert note is not None
        return note


def order(for_s: float = 600.0, boot_id: str = BOOT) -> Order:
    return Order(
        boot_id=boot_id, since=time.time(), until_s=uptime_s() + for_s, reason="new driver"
    )


def test_it_begins_and_ends_with_the_order_and_says_how_far_it_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    assert rig.look() == []
    assert not rig.note().released
    rig.folder.give(order())
    rig.users.holding = ["nvml: a call is in flight"]
    assert rig.look() == [TROUBLE]
    assert rig.paused()
    assert (rig.note().released, rig.note().held) == (False, ("nvml: a call is in flight",))
    trouble = rig.events[0]
    assert (trouble.attributes["source"], trouble.attributes["reason"]) == (
        "maintenance", "maintenance",
    )  # fmt: skip
    assert "new driver" in trouble.text
    rig.users.holding = []
    assert rig.look() == []
    assert rig.note().released
    assert rig.folder.end()
    assert rig.look() == [RECOVERED]
    assert not rig.paused()
    assert not rig.note().released
    rig.keeper.close()
    assert rig.folder.note() is None


def test_an_order_outlasts_a_restart_and_ends_by_itself(tmp_path: Path) -> None:
    first = Rig(tmp_path)
    first.folder.give(order(for_s=0.3))
    first.look()
    first.keeper.close()
    second = Rig(tmp_path)
    second.look()
    began = second.paused()
    while second.folder.order(BOOT) is not None:
        time.sleep(0.02)
    second.look()
    assert not second.paused()
    # On a very slow machine it was over before the second agent looked.
    assert [event.kind for event in second.events] == ([TROUBLE, RECOVERED] if began else [])
    assert not (tmp_path / "maintenance.json").exists() or not began


def test_an_order_of_another_boot_or_too_long_a_one_is_void(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for void in (order(boot_id="another"), order(for_s=1e9), order(for_s=-5.0)):
        rig.folder.give(void)
        assert rig.look() == []
        assert not rig.paused()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b"[" * 100_000, b'{"boot_id": 5}'])
def test_an_order_that_cannot_be_read_is_told_and_changes_nothing(
    tmp_path: Path, content: bytes
) -> None:
    rig = Rig(tmp_path)
    (tmp_path / "maintenance.json").write_bytes(content)
    assert rig.look() == [TROUBLE]
    assert rig.events[0].attributes["reason"] == "order_not_readable"
    assert not rig.paused()
    rig.folder.end()
    assert rig.look() == [RECOVERED]


def test_an_order_that_others_may_write_is_not_obeyed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.folder.give(order())
    (tmp_path / "maintenance.json").chmod(0o666)
    assert rig.look() == [TROUBLE]
    assert rig.events[0].attributes["reason"] == "order_not_trusted"
    with pytest.raises(OrderUnusable, match="rm "):
        rig.folder.order(BOOT)


def test_a_note_of_a_process_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.note() is None
    ticks = started_ticks(os.getpid())
    assert ticks is not None
    folder.say(AgentNote(pid=os.getpid(), started_ticks=ticks))
    assert folder.note() is not None
    folder.say(AgentNote(pid=os.getpid(), started_ticks=ticks - 1))
    assert folder.note() is None
    (tmp_path / "agent.json").write_text("no json")
    assert folder.note() is None


def test_a_folder_that_takes_nothing_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    rig = Rig(tmp_path / "file" / "run")
    assert rig.look() == [TROUBLE]  # the order's place cannot be looked at
    assert rig.folder.note() is None
