"""Runs collectors and followers, so that none can hold up another."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gpuwarden_agent.collector_loop import CollectorLoop
from gpuwarden_agent.collectors.contract import (
    CollectorError,
    Emit,
    EventFollower,
    Glancing,
    Wakeable,
)
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.crew import Crew, Turn
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.port_watch import PortWatch
from gpuwarden_agent.threads import tell_kernel_my_name

_log = get_logger("scheduler")

_LOOK_AT_MOST_EVERY_S = 5.0
_LOOK_AGAIN_S = 0.5
"""While a call has not come back. Likewise after the start, so that a look comes when the calls of
a round are over: each wakes a thread for next to nothing."""

_FOLLOWER_FIRST_PAUSE_S = 1.0
_FOLLOWER_LONGEST_PAUSE_S = 60.0
_FOLLOWER_FINE_AFTER_S = 1.0
"""A follower that was restarted and has run for so long works again."""


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


class LastTurn(Turn, Protocol):
    """What follows the collectors, on their thread where none of them holds it up."""

    @property
    def is_in_flight(self) -> bool:
        """A turn has not ended yet."""
        ...

    def move(self, wake: Callable[[], None]) -> None:
        """`wake` is called from now on when its next turn is due earlier than it was."""
        ...


class Scheduler:
    """All loops of an agent.

    Args:
        collectors: Loops of collectors.
        followers: Loops of followers.
        together: Names of the collectors that take turns on one thread, in their order.
        last: Takes its turns behind them.
    """

    def __init__(
        self,
        collectors: Sequence[CollectorLoop],
        followers: Sequence[FollowerLoop],
        together: Sequence[str] = (),
        last: LastTurn | None = None,
    ) -> None:
        self._followers = tuple(followers)
        self._collectors = tuple(collectors)
        self._last = last
        self._crews = [Crew([one]) for one in collectors if one.name not in together]
        shared: list[Turn] = [one for one in collectors if one.name in together]
        shared.sort(key=lambda one: together.index(one.name))
        if last is not None:
            shared.append(last)
        if shared:
            self._crews.append(Crew(shared))
        self._paused = False
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
        # Followers first: what happens from here on is not missed.
        for follower in self._followers:
            follower.start()
        now = time.monotonic()
        for crew in self._crews:
            for loop in self._of(crew):
                loop.begin(now, crew.wake)
            self._start(crew)
        if self._ports is not None:
            self._ports.start()

    def _start(self, crew: Crew) -> None:
        if self._last is not None and crew.has(self._last):
            self._last.move(crew.wake)
        crew.start()

    def _of(self, crew: Crew) -> list[CollectorLoop]:
        return [loop for loop in self._collectors if crew.has(loop)]

    def pause(self) -> None:
        """Let every collector release what it holds; followers hold no device and go on."""
        self._paused = True
        for loop in self._collectors:
            loop.pause()

    def resume(self) -> None:
        """Let the collectors go on."""
        self._paused = False
        for loop in self._collectors:
            loop.resume()

    def held(self) -> list[str]:
        """What paused collectors have not released yet, in words."""
        return [held for loop in self._collectors if (held := loop.held())]

    def supervise(self, stop: threading.Event, also: Callable[[], None]) -> None:
        """Watch over deadlines until `stop` is set; calls `also` on each round."""
        intervals = [loop.collector.interval_s for loop in self._collectors]
        every_s = min([*intervals, _LOOK_AT_MOST_EVERY_S])
        again_s = min(_LOOK_AGAIN_S, every_s)
        planned = time.monotonic() + again_s
        pause_s = again_s
        while not stop.wait(pause_s):
            unfinished = self.look()
            also()
            late_s = time.monotonic() - planned
            if late_s >= 0:
                planned += every_s * (1 + late_s // every_s)
            left_s = max(0.0, planned - time.monotonic())
            pause_s = min(again_s, left_s) if unfinished else left_s

    def look(self) -> bool:
        """See whether all goes well, once; True where a call has not come back yet."""
        for follower in self._followers:
            follower.supervise()
        for loop in self._collectors:
            loop.supervise()
        if self._ports is not None:
            self._ports.look_after()
        for crew in tuple(self._crews):
            if (others := crew.part()) is not None:
                self._start_apart(others)
        if any(loop.is_in_flight for loop in self._collectors):
            return True
        if self._last is not None and self._last.is_in_flight:
            return True
        return self._paused and bool(self.held())

    def _start_apart(self, others: Crew) -> None:
        """Let those go on who were held up."""
        self._crews.append(others)
        for loop in self._of(others):
            loop.move(others.wake)
        self._start(others)

    def stop(self, patience_s: float) -> list[str]:
        """End all loops within `patience_s`; returns the names of those that are stuck."""
        if self._ports is not None:
            self._ports.stop()
        for follower in self._followers:
            follower.stop()
        for crew in self._crews:
            crew.end()
        deadline = time.monotonic() + patience_s
        stuck = [one.name for one in self._followers if not one.join(_left(deadline))]
        for crew in self._crews:
            crew.await_idle(_left(deadline))
            if self._last is not None and crew.is_busy(self._last):
                stuck.append(self._last.name)
            for loop in self._of(crew):
                if crew.is_busy(loop):
                    stuck.append(loop.name)
                else:
                    loop.close()
        return stuck


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
