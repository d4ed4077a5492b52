from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from threading import Event as StopFlag

from gpuwarden_agent.collector_loop import CollectorLoop
from gpuwarden_agent.collectors.contract import CollectorError, Emit, Harvest
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.scheduler import FollowerLoop, Scheduler
from gpuwarden_wire.events import Event, EventKind
from tests.builders.agent import BOOT, event
from tests.fakes.waiting import wait_for


class Told:
    """A sink and an emitter that remember."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.events: list[Event] = []
        self.board = ConditionBoard(self.events.extend, BOOT)

    def took(self, collector: str, harvest: Harvest, now: float, took_s: float) -> None:
        self.calls.append((collector, "took"))

    def failed(self, collector: str, reason: str, now: float, took_s: float) -> None:
        self.calls.append((collector, reason))

    def stuck(self, collector: str, age_s: float, now: float) -> None:
        self.calls.append((collector, "stuck"))

    def paused(self, collector: str, now: float) -> None:
        self.calls.append((collector, "paused"))

    def count(self, collector: str, what: str) -> int:
        return self.calls.count((collector, what))

    def kinds(self, source: str) -> list[EventKind]:
        return [e.kind for e in self.events if e.attributes["source"] == source]


class Scripted:
    """A collector that does as it is told."""

    def __init__(self, name: str, act: Callable[[], object], interval_s: float = 0.05) -> None:
        self.name = name
        self.interval_s = interval_s
        self.deadline_s = 0.1
        self.act = act
        self.began: list[float] = []
        self.running = 0
        self.most_running = 0
        self.closed = False

    def collect(self, now: float) -> Harvest:
        self.began.append(time.monotonic())
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            self.act()
        finally:
            self.running -= 1
        return Harvest()

    def close(self) -> None:
        self.closed = True


class Rig:
    def __init__(self, *collectors: Scripted) -> None:
        self.told = Told()
        self.scheduler = Scheduler(
            [CollectorLoop(one, self.told, self.told.board) for one in collectors], []
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self.scheduler.supervise, args=(self._stop, lambda: None), daemon=True
        )

    def __enter__(self) -> Told:
        self.scheduler.start()
        self._thread.start()
        return self.told

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2)
        self.left = self.scheduler.stop(0.5)


def nothing() -> None:
    return


class Last:
    """What follows the collectors on their thread, and hangs until it is let go."""

    name = "last"

    def __init__(self) -> None:
        self.due = 0.0
        self.is_in_flight = False
        self.let_go = threading.Event()

    def move(self, wake: Callable[[], None]) -> None:
        return

    def take(self) -> None:
        self.is_in_flight = True
        self.let_go.wait(10)
        self.due = math.inf
        self.is_in_flight = False


def test_what_follows_the_collectors_on_their_thread_holds_none_up() -> None:
    last, told = Last(), Told()
    sound = Scripted("sound", nothing)
    loop = CollectorLoop(sound, told, told.board)
    scheduler = Scheduler([loop], [], ["sound"], last)
    scheduler.start()
    wait_for(lambda: last.is_in_flight)
    calls = len(sound.began)
    wait_for(lambda: scheduler.look() and len(sound.began) > calls + 2)
    assert scheduler.stop(0.2) == ["last"]
    last.let_go.set()


def test_calls_keep_their_cadence_whatever_they_take() -> None:
    """Ten intervals of 50 ms, not ten calls of 30 ms and as many intervals: 0.8 s, each time."""
    assert any(abs(_ten_intervals() - 0.5) < 0.1 for _ in range(10))


def _ten_intervals() -> float:
    slow = Scripted("slow", lambda: time.sleep(0.03))
    with Rig(slow):
        wait_for(lambda: len(slow.began) > 10)
    return slow.began[10] - slow.began[0]


def test_a_raising_collector_is_told_once_and_its_recovery_once() -> None:
    broken = [True]

    def act() -> None:
        if broken[0]:
            raise CollectorError("no_such_file", "Load the driver.")

    collector = Scripted("broken", act)
    with Rig(collector, Scripted("sound", nothing)) as told:
        wait_for(lambda: told.count("broken", "no_such_file") >= 4)
        broken[0] = False
        wait_for(lambda: told.count("broken", "took") >= 4)
    assert told.kinds("broken") == [EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED]
    assert told.kinds("sound") == []
    trouble = told.events[0]
    assert trouble.attributes["reason"] == "no_such_file"
    assert trouble.attributes["mend"] == "Load the driver."
    assert len({e.id for e in told.events}) == 2


def test_a_bug_in_a_collector_stops_nobody() -> None:
    def act() -> None:
        raise ZeroDivisionError

    with Rig(Scripted("buggy", act), Scripted("sound", nothing)) as told:
        wait_for(lambda: told.count("buggy", "internal_error:ZeroDivisionError") >= 3)
        wait_for(lambda: told.count("sound", "took") >= 3)
    assert told.kinds("buggy") == [EventKind.COLLECTOR_TROUBLE]


def test_a_stuck_call_is_told_once_and_never_called_twice_and_holds_nobody_up() -> None:
    free = threading.Event()
    stuck = Scripted("stuck", lambda: free.wait(5))
    sound = Scripted("sound", nothing)
    rig = Rig(stuck, sound)
    with rig as told:
        wait_for(lambda: told.count("stuck", "stuck") >= 2)
        assert len(stuck.began) == 1
        assert told.kinds("stuck") == [EventKind.COLLECTOR_TROUBLE]
        assert told.events[0].attributes["reason"] == "deadline_exceeded"
        offsets = [began - sound.began[0] for began in sound.began]
        assert len(offsets) >= int(offsets[-1] / 0.05) - 2
        free.set()
        wait_for(lambda: told.count("stuck", "took") >= 3)
    assert told.kinds("stuck") == [EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED]
    assert stuck.most_running == 1
    assert rig.left == []
    assert stuck.closed


def test_a_call_that_never_ends_does_not_keep_the_agent_from_ending() -> None:
    free = threading.Event()
    stuck = Scripted("stuck", lambda: free.wait(30))
    rig = Rig(stuck)
    with rig:
        wait_for(lambda: stuck.began)
    assert rig.left == ["stuck"]
    assert not stuck.closed
    free.set()


class Follower:
    def __init__(self, act: Callable[[Emit, StopFlag], None]) -> None:
        self.name = "follower"
        self.act = act
        self.starts: list[float] = []

    def follow(self, emit: Emit, stop: StopFlag) -> None:
        self.starts.append(time.monotonic())
        self.act(emit, stop)


def test_a_follower_starts_again_later_each_time_and_recovery_is_told_once() -> None:
    broken = [True]

    def act(emit: Emit, stop: StopFlag) -> None:
        if broken[0]:
            raise CollectorError("no_such_file")
        emit([event(1)])
        stop.wait()

    told = Told()
    got: list[Event] = []
    follower = Follower(act)
    loop = FollowerLoop(follower, got.extend, told.board, first_pause_s=0.02, fine_after_s=0.05)
    scheduler = Scheduler([], [loop])
    stop = threading.Event()
    watcher = threading.Thread(target=scheduler.supervise, args=(stop, lambda: None), daemon=True)
    scheduler.start()
    watcher.start()
    wait_for(lambda: len(follower.starts) >= 5)
    gaps = [b - a for a, b in zip(follower.starts, follower.starts[1:], strict=False)]
    assert gaps[3] > gaps[0] * 2
    broken[0] = False
    wait_for(lambda: EventKind.COLLECTOR_RECOVERED in told.kinds("follower"))
    assert got == [event(1)]
    assert told.kinds("follower") == [EventKind.COLLECTOR_TROUBLE, EventKind.COLLECTOR_RECOVERED]
    stop.set()
    assert scheduler.stop(1.0) == []


def test_paused_it_calls_nobody_closes_each_and_says_so_until_it_goes_on() -> None:
    one, other = Scripted("one", nothing), Scripted("other", nothing)
    rig = Rig(one, other)
    with rig as told:
        wait_for(lambda: told.count("one", "took") and told.count("other", "took"))
        rig.scheduler.pause()
        wait_for(lambda: not rig.scheduler.held())
        assert one.closed
        assert other.closed
        calls = len(one.began), len(other.began)
        wait_for(lambda: told.count("one", "paused") >= 3)
        assert (len(one.began), len(other.began)) == calls
        one.closed = False
        rig.scheduler.resume()
        wait_for(lambda: len(one.began) > calls[0] and len(other.began) > calls[1])
        assert not one.closed
    assert told.events == []  # neither is trouble of a collector


def test_a_call_in_flight_is_waited_for_before_its_collector_is_closed() -> None:
    free = threading.Event()
    slow = Scripted("slow", lambda: free.wait(30))
    rig = Rig(slow, Scripted("sound", nothing))
    with rig as told:
        wait_for(lambda: slow.began)
        rig.scheduler.pause()
        wait_for(lambda: rig.scheduler.held() == ["slow: a call is in flight"])
        wait_for(lambda: told.count("sound", "paused") >= 2)
        assert not slow.closed
        free.set()
        wait_for(lambda: slow.closed)
        wait_for(lambda: rig.scheduler.held() == [])


def test_paused_before_the_start_it_calls_nobody() -> None:
    one = Scripted("one", nothing)
    rig = Rig(one)
    rig.scheduler.pause()
    with rig as told:
        wait_for(lambda: told.count("one", "paused") >= 2)
    assert one.began == []


class HeldBack(Scripted):
    """A collector whose handles outlast its close."""

    left = "child 42 in nvmlInit for 7 s"

    def held(self) -> str:
        return self.left


def test_what_a_collector_still_holds_after_its_close_is_told() -> None:
    one = HeldBack("nvml", nothing)
    rig = Rig(one)
    rig.scheduler.pause()
    with rig as told:
        wait_for(lambda: told.count("nvml", "paused"))
        assert rig.scheduler.held() == ["nvml: child 42 in nvmlInit for 7 s"]
        one.left = ""
        assert rig.scheduler.held() == []
