"""Runs collectors and followers, each in a thread of its own, so that none can hold up another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from gpuwarden_agent.collectors.contract import (
    Collector,
    CollectorError,
    Emit,
    EventFollower,
    Glancing,
    Harvest,
    Lingering,
    Notice,
    Wakeable,
)
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.harvest_check import sound
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.port_watch import PortWatch
from gpuwarden_agent.threads import tell_kernel_my_name

_log = get_logger("scheduler")

_SUPERVISE_EVERY_S = 2.0
"""Deadlines are of seconds, and each round wakes a thread for next to nothing."""

_FOLLOWER_FIRST_PAUSE_S = 1.0
_FOLLOWER_LONGEST_PAUSE_S = 60.0
_FOLLOWER_FINE_AFTER_S = 1.0
"""A follower that was restarted and has run for so long works again."""


class HarvestSink(Protocol):
    """Takes what collectors bring, from their threads."""

    def took(self, collector: str, harvest: Harvest, now: float, took_s: float) -> None:
        """A call ended well; it began at `now` (epoch seconds) and lasted `took_s`."""
        ...

    def failed(self, collector: str, reason: str, now: float, took_s: float) -> None:
        """A call ended in an error."""
        ...

    def stuck(self, collector: str, age_s: float, now: float) -> None:
        """A call is past its deadline; told once an interval for as long as it lasts."""
        ...

    def paused(self, collector: str, now: float) -> None:
        """No call is made on purpose; told once an interval for as long as it lasts."""
        ...


class Loop(Protocol):
    """A thread that runs one collector or follower."""

    @property
    def name(self) -> str:
        """Name of the collector or follower."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def supervise(self) -> None:
        """Look whether all goes well."""
        ...

    def stop(self) -> None:
        """Ask it to end."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Wait for it; False where it does not end."""
        ...


class CollectorLoop:
    """Calls one collector on a fixed cadence, never twice at once."""

    def __init__(
        self,
        collector: Collector,
        sink: HarvestSink,
        board: ConditionBoard,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.collector = collector
        self._sink = sink
        self._board = board
        self._clock = clock
        self._stop = threading.Event()
        self._woken = threading.Event()
        self._wanted = True
        self._hurried = False
        self._released = False
        self._running_since: float | None = None
        self._told_stuck_at = 0.0
        self._noticed: set[str] = set()
        self._thread = threading.Thread(target=self._run, name=collector.name, daemon=True)

    @property
    def name(self) -> str:
        """Name of the collector."""
        return self.collector.name

    def start(self) -> None:
        """Begin at once; the cadence counts from here."""
        self._thread.start()

    def _run(self) -> None:
        tell_kernel_my_name()
        interval = self.collector.interval_s
        due = time.monotonic()
        while not self._stop.is_set():
            self._act()
            due += interval
            late = time.monotonic() - due
            if late > 0:
                due += interval * -(-late // interval)  # keep the phase; what was missed is skipped
            due = self._await(due)

    def _act(self, *, urgent: bool = False) -> None:
        if self._wanted:
            self._released = False
            self._call(urgent=urgent)
        else:
            self._rest()

    def _await(self, due: float) -> float:
        """Sleep until the next call is due, monotonic seconds; a hurry leaves the cadence."""
        while self._woken.wait(max(0.0, due - time.monotonic())):
            self._woken.clear()
            hurried, self._hurried = self._hurried, False
            if self._stop.is_set() or not (hurried and self._wanted):
                return time.monotonic()
            self._act(urgent=True)
        return due

    def hurry(self) -> None:
        """Make one call more at once, whose readings are sealed without waiting for others."""
        self._hurried = True
        self._woken.set()

    def _rest(self) -> None:
        if not self._released:
            self._close()
            self._released = True
        self._sink.paused(self.collector.name, self._clock())

    def _close(self) -> None:
        try:
            self.collector.close()
        except Exception:
            _log.exception("collector_bug_at_close", collector=self.collector.name)

    def pause(self) -> None:
        """Make no further call, and release the collector when the call in flight has ended."""
        self._wanted = False
        self._woken.set()

    def resume(self) -> None:
        """Go on at once."""
        self._wanted = True
        self._woken.set()

    def held(self) -> str:
        """While paused: what is not released yet, in words; "" for nothing."""
        if not self._released and self._thread.is_alive():
            return f"{self.name}: a call is in flight"
        held = self.collector.held() if isinstance(self.collector, Lingering) else ""
        return f"{self.name}: {held}" if held else ""

    def _call(self, *, urgent: bool) -> None:
        name = self.collector.name
        now, began = self._clock(), time.monotonic()
        self._running_since = began
        try:
            harvest = sound(self.collector.collect(now))
            harvest = replace(harvest, urgent=True) if urgent else harvest
            self._running_since = None
            self._sink.took(name, harvest, now, time.monotonic() - began)
        except CollectorError as error:
            self._failed(error.reason, error.mend, now, began)
        except Exception as error:
            _log.exception("collector_bug", collector=name)
            self._failed(f"internal_error:{type(error).__name__}", "Report this bug.", now, began)
        else:
            self._board.fine(name)
            self._notice(harvest.notices)
        finally:
            self._running_since = None

    def _notice(self, notices: Mapping[str, Notice]) -> None:
        for source, notice in notices.items():
            self._board.trouble(source, notice.reason, notice.mend)
        for source in self._noticed - notices.keys():
            self._board.fine(source)
        self._noticed = set(notices)

    def _failed(self, reason: str, mend: str, now: float, began: float) -> None:
        self._running_since = None
        self._board.trouble(self.collector.name, reason, mend)
        self._sink.failed(self.collector.name, reason[:200], now, time.monotonic() - began)

    def supervise(self) -> None:
        """Tell where the call in flight is past its deadline."""
        since, now = self._running_since, time.monotonic()
        if since is None or now - since < self.collector.deadline_s:
            return
        self._board.trouble(
            self.collector.name,
            "deadline_exceeded",
            f"One call takes more than {self.collector.deadline_s:g} s; the others go on.",
        )
        if now - self._told_stuck_at >= self.collector.interval_s:
            self._told_stuck_at = now
            self._sink.stuck(self.collector.name, now - since, self._clock())

    def stop(self) -> None:
        """Make no further call."""
        self._stop.set()
        self._woken.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the call in flight and release the collector; False where it is stuck."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._close()
        return True


class FollowerLoop:
    """Keeps one follower going: after an error it starts again, later each time."""

    def __init__(
        self,
        follower: EventFollower,
        emit: Emit,
        board: ConditionBoard,
        first_pause_s: float = _FOLLOWER_FIRST_PAUSE_S,
        fine_after_s: float = _FOLLOWER_FINE_AFTER_S,
    ) -> None:
        self.follower = follower
        self._emit = emit
        self._board = board
        self._first_pause_s = first_pause_s
        self._pause_s = first_pause_s
        self._fine_after_s = fine_after_s
        self._stop = threading.Event()
        self._running_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=follower.name, daemon=True)

    @property
    def name(self) -> str:
        """Name of the follower."""
        return self.follower.name

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def _run(self) -> None:
        tell_kernel_my_name()
        name = self.follower.name
        while not self._stop.is_set():
            self._running_since = time.monotonic()
            try:
                self.follower.follow(self._emit, self._stop)
            except CollectorError as error:
                self._board.trouble(name, error.reason, error.mend)
            except Exception as error:
                _log.exception("follower_bug", follower=name)
                self._board.trouble(
                    name, f"internal_error:{type(error).__name__}", "Report this bug."
                )
            self._running_since = None
            self._stop.wait(self._pause_s * (0.75 + random.random() / 2))
            self._pause_s = min(self._pause_s * 2, _FOLLOWER_LONGEST_PAUSE_S)

    def supervise(self) -> None:
        """Tell where the follower has come back."""
        since = self._running_since
        if since is not None and time.monotonic() - since >= self._fine_after_s:
            self._pause_s = self._first_pause_s
            self._board.fine(self.follower.name)

    def stop(self) -> None:
        """Ask the follower to end."""
        self._stop.set()
        if isinstance(self.follower, Wakeable):
            self.follower.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for it; False where it does not end."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()


class Scheduler:
    """All loops of an agent."""

    def __init__(
        self, collectors: Sequence[CollectorLoop], followers: Sequence[FollowerLoop]
    ) -> None:
        # Followers first: what happens from here on is not missed.
        self._loops: tuple[Loop, ...] = (*followers, *collectors)
        self._collectors = tuple(collectors)
        self._ports: PortWatch | None = None

    def hurry(self, name: str) -> None:
        """Let a collector make one call more at once."""
        for loop in self._collectors:
            if loop.name == name:
                loop.hurry()

    def look_between(self, interval_s: float) -> None:
        """Look at ports between two collections, so often; before the start."""
        collectors = [loop.collector for loop in self._collectors]
        watched = {one.name: one for one in collectors if isinstance(one, Glancing)}
        self._ports = PortWatch(watched, self.hurry, interval_s)

    def start(self) -> None:
        """Start all loops."""
        for loop in self._loops:
            loop.start()
        if self._ports is not None:
            self._ports.start()

    def pause(self) -> None:
        """Let every collector release what it holds; followers hold no device and go on."""
        for loop in self._collectors:
            loop.pause()

    def resume(self) -> None:
        """Let the collectors go on."""
        for loop in self._collectors:
            loop.resume()

    def held(self) -> list[str]:
        """What paused collectors have not released yet, in words."""
        return [held for loop in self._collectors if (held := loop.held())]

    def supervise(self, stop: threading.Event, also: Callable[[], None]) -> None:
        """Watch over deadlines until `stop` is set; calls `also` on each round."""
        while not stop.wait(_SUPERVISE_EVERY_S):
            for loop in self._loops:
                loop.supervise()
            also()

    def stop(self, patience_s: float) -> list[str]:
        """End all loops within `patience_s`; returns the names of those that are stuck."""
        if self._ports is not None:
            self._ports.stop()
        for loop in self._loops:
            loop.stop()
        deadline = time.monotonic() + patience_s
        return [
            loop.name
            for loop in self._loops
            if not loop.join(max(0.0, deadline - time.monotonic()))
        ]
