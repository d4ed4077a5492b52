from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuwarden_agent.collectors.contract import CollectorError
from gpuwarden_agent.collectors.kernel_dating import LineDating
from gpuwarden_agent.collectors.kernel_entities import disk_entity, nic_entity
from gpuwarden_agent.collectors.kernel_log import KernelLogFollower
from gpuwarden_agent.sources.kernel_lines import KernelLine
from gpuwarden_wire.events import Backlog, Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.agent import BOOT, XID_79
from tests.builders.following import BOOTED, STARTED, Positions, Running, append, position_of
from tests.fakes.waiting import wait_for

NEXT_BOOT = BOOT[:-1] + "2"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "kern.log"
    found.write_text("")
    return found


def test_a_line_becomes_an_event_with_all_that_it_says(path: Path) -> None:
    with Running(path, Positions()) as run:
        append(path, XID_79)
        found = run.until(lambda events: len(events) == 1)[0]
    assert (found.kind, found.family, found.xid) == (EventKind.KERNEL_LOG, "xid", 79)
    assert (found.entity_kind, found.entity) == (EntityKind.GPU, "")
    assert found.pci_bus_id == "0000:3b:00.0"
    assert found.severity == "critical"
    assert found.text == XID_79
    assert found.backlog is Backlog.NONE
    assert found.attributes["acts_alone"] is True


def test_what_a_program_may_have_written_says_so(path: Path) -> None:
    follower = Running(path, Positions()).follower
    forms = {
        "Jan 21 04:41:44 n1 bob[4242]: {}": True,
        'overlayfs: unrecognized mount option "{}"': True,
        "Jan 21 04:41:44 n1 kernel: [20001.123456] {}": False,
    }
    for form, unproven in forms.items():
        text = form.format(XID_79).encode()
        (one,) = follower.recognise(KernelLine(id="file:1:2:3", text=text))
        assert bool(one.attributes.get("unproven")) is unproven, form
        assert bool(one.attributes.get("acts_alone")) is not unproven, form
    relayed = KernelLine(id="kmsg:b:1", text=XID_79.encode(), relayed=True)
    assert follower.recognise(relayed)[0].attributes["unproven"] is True


def test_benign_lines_give_nothing(path: Path) -> None:
    with Running(path, Positions()) as run:
        append(path, "usb 1-1: new high-speed USB device", "", "EXT4-fs (vda): mounted", XID_79)
        assert len(run.until(lambda events: len(events) >= 1)) == 1


def test_repeats_are_one_event_with_a_count_and_the_first_goes_at_once(path: Path) -> None:
    with Running(path, Positions()) as run:
        append(path, *[XID_79] * 4, XID_79.replace("79", "48"))
        found = list(run.until(lambda events: len(events) == 2))
        assert [(e.xid, e.count) for e in found] == [(79, 1), (48, 1)]
    rest = run.positions.events[2:]
    assert [(e.xid, e.count) for e in rest] == [(79, 3)]
    assert rest[0].id not in {e.id for e in found}


def test_after_a_crash_nothing_is_lost_and_nothing_doubled(path: Path) -> None:
    positions = Positions()
    with Running(path, positions) as run:
        append(path, *[XID_79] * 3)
        run.until(lambda events: len(events) == 1)
        append(path, XID_79.replace("3b", "3c"))
        run.until(lambda events: len(events) == 2)
        crashed = Positions()
        crashed.content, crashed.events = positions.content, list(positions.events)
    append(path, XID_79.replace("3b", "3d"))
    with Running(path, crashed) as run:
        found = run.until(lambda events: len(events) == 4)
    counts = {(e.pci_bus_id, e.count) for e in found}
    assert counts == {
        ("0000:3b:00.0", 1),
        ("0000:3b:00.0", 2),
        ("0000:3c:00.0", 1),
        ("0000:3d:00.0", 1),
    }
    assert [e.backlog for e in found if e.pci_bus_id == "0000:3d:00.0"] == [Backlog.NONE]
    assert len({e.id for e in found}) == 4


def test_a_line_appended_now_is_news_whatever_stamp_it_bears(path: Path) -> None:
    with Running(path, Positions()) as run:
        append(path, f"2020-01-21T04:41:44.28Z node kernel: {XID_79}")
        found = run.until(lambda events: len(events) == 1)[0]
    assert found.backlog is Backlog.NONE
    assert found.observed_at == pytest.approx(time.time(), abs=60)


def test_what_was_appended_while_the_agent_was_down_is_news(path: Path) -> None:
    positions = Positions()
    with Running(path, positions):
        pass
    append(path, XID_79, XID_79.replace("3b", "3c"))
    with Running(path, positions) as run:
        found = run.until(lambda events: len(events) == 2)
    assert {e.backlog for e in found} == {Backlog.NONE}


def test_after_a_reboot_only_what_the_new_boot_wrote_is_news(path: Path) -> None:
    positions = Positions()
    with Running(path, positions):
        pass
    banner = "Jun 14 15:16:01 node kernel: [    0.000000] Linux version 6.8.0-41-generic (x)"
    append(path, XID_79, banner, XID_79.replace("3b", "3c"))
    with Running(path, positions, NEXT_BOOT) as run:
        wait_for(lambda: position_of(positions).boot_id == NEXT_BOOT)
    found = run.all()
    assert [(e.pci_bus_id, e.backlog) for e in found] == [
        ("0000:3b:00.0", Backlog.OLDER_BOOT),
        ("0000:3c:00.0", Backlog.NONE),
    ]
    assert found[0].observed_at == BOOTED, "no later than this"


def test_repeats_that_were_counted_in_an_older_boot_are_of_that_boot(path: Path) -> None:
    positions, crashed = Positions(), Positions()
    with Running(path, positions) as run:
        append(path, *[XID_79] * 3)
        wait_for(lambda: run.pending() == 2)
        crashed.content = positions.content
    with Running(path, crashed, NEXT_BOOT) as run:
        wait_for(run.all)
    (rest,) = run.all()
    assert (rest.count, rest.backlog) == (2, Backlog.OLDER_BOOT)


def test_a_first_look_that_was_cut_short_is_a_first_look_again(path: Path) -> None:
    append(path, XID_79, *["nothing of note"] * 10_000)  # more than is read at a time
    positions = Positions()
    follower = KernelLogFollower(
        path, path.parent, BOOT, STARTED, positions, 1_000_000, booted_at=BOOTED
    )

    def refuse(events: Sequence[Event]) -> None:
        raise OSError("the disk is full")

    with pytest.raises(CollectorError):
        follower.follow(refuse, threading.Event())
    assert positions.content is None
    with Running(path, positions) as run:
        wait_for(run.all)
    (found,) = run.all()
    assert found.backlog is Backlog.FIRST_LOOK


def test_another_log_is_looked_at_for_the_first_time(path: Path) -> None:
    positions = Positions()
    with Running(path, positions):
        pass
    other = path.with_name("messages")
    append(other, XID_79)
    with Running(other, positions) as run:
        wait_for(run.all)
    (found,) = run.all()
    assert found.backlog is Backlog.FIRST_LOOK


@pytest.mark.parametrize(
    ("said", "same_boot", "stamped", "expected", "at"),
    [
        (Backlog.NONE, True, None, Backlog.NONE, "now"),
        (Backlog.NONE, True, STARTED - 60, Backlog.NONE, "stamp"),
        (Backlog.NONE, True, 1_500_000_000.0, Backlog.NONE, "now"),
        (Backlog.NONE, False, 1_500_000_000.0, Backlog.OLDER_BOOT, "stamp"),
        (Backlog.FIRST_LOOK, True, None, Backlog.FIRST_LOOK, "now"),
        (Backlog.FIRST_LOOK, True, STARTED - 60, Backlog.FIRST_LOOK, "stamp"),
        (Backlog.FIRST_LOOK, True, STARTED + 60, Backlog.NONE, "stamp"),
        (Backlog.FIRST_LOOK, True, BOOTED - 90, Backlog.OLDER_BOOT, "stamp"),
        (Backlog.OLDER_BOOT, False, None, Backlog.OLDER_BOOT, "boot"),
        (Backlog.OLDER_BOOT, False, STARTED, Backlog.OLDER_BOOT, "stamp"),
        (None, False, None, Backlog.OLDER_BOOT, "boot"),
        (None, False, BOOTED - 1, Backlog.OLDER_BOOT, "stamp"),
        (None, False, BOOTED + 1, Backlog.NONE, "stamp"),
    ],
)
def test_lines_are_dated_by_their_place_then_by_their_stamp(
    said: Backlog | None, same_boot: bool, stamped: float | None, expected: Backlog, at: str
) -> None:
    now = STARTED + 300
    dating = LineDating(STARTED, BOOTED, same_boot)
    backlog, written = dating.date(KernelLine("id", b"", backlog=said), stamped, now)
    assert backlog is expected
    assert written == {"now": now, "stamp": stamped, "boot": BOOTED}[at]


def test_the_driver_version_comes_from_sysfs(path: Path, tmp_path: Path) -> None:
    module = tmp_path / "sys" / "module" / "nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text("570.124.06\n")
    follower = KernelLogFollower(
        path, tmp_path / "sys", BOOT, 0.0, Positions(), 1_000_000, booted_at=None
    )
    follower._refresh_context()
    assert follower._context.driver_version == "570.124.06"


def test_a_missing_log_says_what_to_do(tmp_path: Path) -> None:
    follower = KernelLogFollower(
        tmp_path / "none", tmp_path, BOOT, 0.0, Positions(), 1_000_000, booted_at=None
    )
    with pytest.raises(CollectorError) as caught:
        follower.follow(lambda events: None, threading.Event())
    assert caught.value.reason == "no_such_file"
    assert str(tmp_path / "none") in caught.value.mend


def test_a_spoilt_position_starts_anew(path: Path) -> None:
    positions = Positions()
    positions.content = b"{spoilt"
    append(path, XID_79)
    with Running(path, positions) as run:
        assert run.until(lambda events: len(events) == 1)[0].backlog


def test_lines_name_ports_and_disks_as_the_wire_does() -> None:
    assert nic_entity("eth2", "mlx5_core 0000:3b:00.0 eth2: Link down") == "eth2"
    assert nic_entity("mlx5_1", "mlx5_1: Port: 2 Link DOWN") == "mlx5_1/2"
    assert nic_entity("mlx5_1", "infiniband mlx5_1: fatal") == "mlx5_1/1"
    assert disk_entity("nvme0") == "nvme0n1"
    assert disk_entity("nvme0n1") == "nvme0n1"
    assert disk_entity("nvme0n1p2") == "nvme0n1"
    assert disk_entity("sda1") == "sda"
    assert disk_entity("sdaa") == "sdaa"
