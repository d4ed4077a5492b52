"""XID events through real pynvml over the compiled stub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from threading import Event as StopFlag
from threading import Thread

import pytest

from gpuwarden_agent.collectors.nvml import NvmlXidFollower
from gpuwarden_wire.events import Event, EventKind
from tests.builders import nvml
from tests.builders.nvml import NodeScenario, StubbedNode, stubbed_node, wait_until

pytestmark = pytest.mark.serial


class Followed:
    """A node whose XID events are followed in a thread, as the scheduler does."""

    def __init__(self, node: StubbedNode) -> None:
        self.node = node
        self.events: SimpleQueue[tuple[float, Event]] = SimpleQueue()
        self.stop = StopFlag()
        self.follower = NvmlXidFollower(node.probe, node.settings)
        self.thread = Thread(target=self.follower.follow, args=(self.emit, self.stop))
        node.collect()
        self.thread.start()
        self.wait_for_watch(len(node.scenario.node.gpus))

    def emit(self, events: Sequence[Event]) -> None:
        for event in events:
            self.events.put((time.monotonic(), event))

    def wait_for_watch(self, gpus: int) -> None:
        def watched() -> bool:
            watch = self.node.probe.watch()
            return watch is not None and watch.gpus == gpus

        wait_until(watched)

    def next(self) -> tuple[float, Event]:
        return self.events.get(timeout=5.0)

    def close(self) -> None:
        self.stop.set()
        self.follower.wake()
        self.thread.join(5.0)
        self.node.close()


@pytest.fixture
def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    one = Followed(stubbed_node(tmp_path, monkeypatch, nvml.h100_node()))
    yield one
    one.close()


def test_an_xid_arrives_within_a_fraction_of_a_second(
    followed: Followed, record_property: Callable[[str, object], None]
) -> None:
    latencies = []
    for number in range(20):
        gpu, code = number % 8, 60 + number
        sent_at = time.monotonic()
        followed.node.scenario.change(lambda n, g=gpu, c=code: n.raise_xid(g, c))  # type: ignore[misc]  # bound now, not later
        received_at, event = followed.next()
        latencies.append(received_at - sent_at)
        wanted = followed.node.scenario.node.gpu(gpu)
        assert (event.kind, event.xid) == (EventKind.NVML_XID, code)
        assert (event.entity, event.pci_bus_id) == (wanted.uuid, wanted.pci)
        assert event.id.startswith(f"nvml:boot-1:{wanted.uuid}:")
        assert event.attributes == {}
    record_property("median_ms", round(median(latencies) * 1000, 2))
    assert median(latencies) < 0.1
    assert max(latencies) < 1.0


RECOVERY_ACTION, ECC_STORM, CLOCK = 0x8000, 0x200, 0x10  # nvml.h


def test_other_events_that_announce_a_fault_make_a_poll_worth_making(followed: Followed) -> None:
    hurried: list[None] = []
    node = followed.node
    node.probe.on_change(lambda: hurried.append(None))
    node.scenario.change(lambda n: n.announce(2, CLOCK))  # announces nothing
    node.scenario.change(lambda n: n.announce(2, RECOVERY_ACTION))
    wait_until(lambda: hurried)
    for _ in range(20):
        node.scenario.change(lambda n: n.announce(3, ECC_STORM))
    node.scenario.change(lambda n: n.raise_xid(3, 79))
    assert followed.next()[1].xid == 79  # behind all of them
    assert len(hurried) in range(2, 12), "a storm makes no more polls than one a second"


def test_a_driver_that_refuses_newer_types_gives_xids_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, types in enumerate(("unsupported nvmlDeviceGetSupportedEventTypes", "")):
        scenario = nvml.h100_node(1)
        scenario.gpu(0).rules += [types] if types else []
        scenario.gpu(0).numbers.pop("event_types")
        folder = tmp_path / str(number)
        folder.mkdir()
        old = Followed(stubbed_node(folder, monkeypatch, scenario))
        old.node.scenario.change(lambda n: n.raise_xid(0, 79))
        assert old.next()[1].xid == 79
        old.close()


def test_events_arrive_while_a_poll_hangs(followed: Followed) -> None:
    followed.node.scenario.change(lambda n: n.gpu(0).rules.append("hang nvmlDeviceGetSerial"))
    followed.node.scenario.change(lambda n: n.gpu(0).rules.append("hang nvmlDeviceGetPowerUsage"))
    poll = Thread(target=followed.node.collect)
    poll.start()
    wait_until(lambda: followed.node.probe.condition().call == "nvmlDeviceGetPowerUsage")
    followed.node.scenario.change(lambda n: n.raise_xid(0, 119))
    assert followed.next()[1].xid == 119
    followed.node.scenario.change(lambda n: n.gpu(0).rules.clear())
    poll.join(15.0)


def test_the_xid_of_a_gpu_that_is_lost_at_once_is_delivered_and_the_others_are_watched_on(
    followed: Followed,
) -> None:
    def fall_off(node: NodeScenario) -> None:
        node.gpu(5).lose()
        node.raise_xid(5, 79)

    followed.node.scenario.change(fall_off)
    assert followed.next()[1].xid == 79
    followed.node.collect()
    followed.wait_for_watch(7)
    followed.node.scenario.change(lambda n: n.raise_xid(1, 48))
    assert followed.next()[1].xid == 48
    followed.node.scenario.change(lambda n: n.gpu(5).restore())
    followed.node.collect()
    followed.wait_for_watch(8)
    followed.node.scenario.change(lambda n: n.raise_xid(5, 31))
    assert followed.next()[1].xid == 31


def test_a_storm_becomes_one_event_at_once_and_one_with_the_count(followed: Followed) -> None:
    def storm(node: NodeScenario) -> None:
        for _ in range(50):
            node.raise_xid(2, 31)

    followed.node.scenario.change(storm)
    _, first = followed.next()
    with pytest.raises(Empty):
        followed.events.get(timeout=0.5)
    followed.stop.set()
    _, rest = followed.next()
    assert (first.count, rest.count) == (1, 49)
    assert first.id != rest.id


def test_ids_keep_rising_over_a_new_child(followed: Followed) -> None:
    followed.node.scenario.change(lambda n: n.raise_xid(0, 48))
    first = followed.next()[1]
    followed.node.probe.renew()
    followed.node.collect()
    followed.wait_for_watch(8)
    followed.node.scenario.change(lambda n: n.raise_xid(0, 63))
    second = followed.next()[1]
    counters = [int(event.id.rpartition(":")[2]) for event in (first, second)]
    assert counters[0] < counters[1]
    assert (first.xid, second.xid) == (48, 63)


def test_waiting_for_events_costs_no_processor_time(followed: Followed) -> None:
    (pid,) = nvml.child_pids()

    def ticks() -> int:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(words[11]) + int(words[12])  # proc(5): utime and stime, 1/100 s

    before = ticks()
    time.sleep(1.0)
    assert ticks() - before <= 2
