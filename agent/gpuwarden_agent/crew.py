"""Threads that make the collectors' calls: several collectors share one for as long as none hangs.

Waking a thread costs more than what most collectors do, so those that read kernel files take turns
on one thread. Where a call does not come back, its thread is left to it, and another thread goes on
with the others: from then on that collector has a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gpuwarden_agent.threads import tell_kernel_my_name

PATIENCE_S = 0.4
"""A call that lasts longer no longer holds up others; kernel files are read in a millisecond."""


class Turn(Protocol):
    """Something that is to be done again and again."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def due(self) -> float:
        """Monotonic seconds of its next turn; infinite where none is to come."""
        ...

    def take(self) -> None:
        """Do it once; never called twice at once."""
        ...


class Crew:
    """One thread and those who take turns on it. Thread-safe.

    Args:
        turns: In the order in which those that are due together come.
        clock: Monotonic seconds.
    """

    def __init__(self, turns: Sequence[Turn], clock: Callable[[], float] = time.monotonic) -> None:
        self._turns = tuple(turns)
        self._clock = clock
        self._changed = threading.Condition()
        self._busy: Turn | None = None
        self._busy_since = 0.0
        self._over = False
        name = self._turns[0].name if len(self._turns) == 1 else "collectors"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def lives(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Somebody is due earlier than he was."""
        with self._changed:
            self._changed.notify_all()

    def end(self) -> None:
        """Give nobody a further turn."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def has(self, turn: Turn) -> bool:
        """Whether he takes his turns here."""
        return turn in self._turns

    def is_busy(self, turn: Turn | None = None) -> bool:
        """Whether his turn lasts, or anybody's."""
        busy = self._busy
        return busy is not None and (turn is None or busy is turn)

    def await_idle(self, timeout_s: float) -> bool:
        """Wait for the end of the turn that lasts; False where it does not end."""
        with self._changed:
            return self._changed.wait_for(lambda: self._busy is None, timeout_s)

    def part(self) -> Crew | None:
        """Where one holds up others: leave him alone, and give a crew of the others, to be started.

        None where nobody is held up.
        """
        if not self.is_busy():
            return None  # as nearly always; whoever begins now holds up nobody yet
        with self._changed:
            now, busy = self._clock(), self._busy
            if self._over or busy is None or now - self._busy_since < PATIENCE_S:
                return None
            others = tuple(one for one in self._turns if one is not busy)
            if all(one.due > now for one in others):
                return None
            self._turns = (busy,)
        return Crew(others, self._clock)

    def _run(self) -> None:
        tell_kernel_my_name()
        while turns := self._await_turns():
            for turn in turns:
                if self._begin(turn):
                    turn.take()
        self._rest()

    def _await_turns(self) -> list[Turn]:
        """Those who are due, as soon as anybody is; empty at the end."""
        with self._changed:
            self._rest()
            while not self._over:
                now = self._clock()
                if ready := [one for one in self._turns if one.due <= now]:
                    return ready
                left = min(one.due for one in self._turns) - now
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
        return []

    def _begin(self, turn: Turn) -> bool:
        """False where he takes his turns elsewhere by now, or nobody takes any."""
        with self._changed:
            if self._over or turn not in self._turns:
                return False
            self._busy, self._busy_since = turn, self._clock()
            return True

    def _rest(self) -> None:
        with self._changed:
            if self._busy is not None:
                self._busy = None
                self._changed.notify_all()
