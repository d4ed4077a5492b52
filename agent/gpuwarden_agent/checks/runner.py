"""Starts plug-in checks when they are due, a few at once, and hands over how they ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

from gpuwarden_agent.checks.definitions import CheckDefinition
from gpuwarden_agent.checks.ownership import refusal
from gpuwarden_agent.checks.process import Outcome, run_check

AT_ONCE = 4
"""Checks that run at the same time: they share the node with a training job."""

_CLOSE_PATIENCE_S = 6.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a check.

    Attributes:
        check: Which.
        began_at: Epoch seconds.
        outcome: How it ended.
        mend: What the operator can do where it was refused, "" else.
    """

    check: CheckDefinition
    began_at: float
    outcome: Outcome
    mend: str = ""


class CheckRunner:
    """Each run has a thread of its own, which ends with it. One thread calls the methods."""

    def __init__(
        self,
        checks: Sequence[CheckDefinition],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._checks = checks
        self._clock = clock
        self._monotonic = monotonic
        self._due = {check.name: monotonic() for check in checks}
        self._running: dict[str, Thread] = {}
        self._left: dict[str, subprocess.Popen[bytes]] = {}
        self._finished: SimpleQueue[Run] = SimpleQueue()
        self._stop = Event()

    @property
    def busy(self) -> int:
        """Runs whose end was not taken yet."""
        return len(self._running)

    def finished(self) -> list[Run]:
        """Runs that have ended since the last call, in that order."""
        found: list[Run] = []
        while True:
            try:
                run = self._finished.get_nowait()
            except Empty:
                return found + self._broken()
            self._running.pop(run.check.name, None)
            if run.outcome.left is not None:
                self._left[run.check.name] = run.outcome.left
            found.append(run)

    def make_due(self, names: Iterable[str]) -> None:
        """Let checks be due now."""
        now = self._monotonic()
        self._due |= {name: min(self._due[name], now) for name in names}

    def is_running(self, name: str) -> bool:
        """Whether a run of a check has begun whose end was not taken yet."""
        return name in self._running

    def start_due(
        self,
        may_start: Callable[[CheckDefinition], bool] = lambda check: True,
        wanted: Collection[str] = (),
    ) -> None:
        """Start what is wanted, then what is due, the longest overdue first.

        What runs or cannot be ended is not started; what may not start stays due.
        """
        now = self._monotonic()
        self._left = {name: one for name, one in self._left.items() if one.poll() is None}
        named = (one for one in self._checks if one.name in wanted or self._due[one.name] <= now)
        due = [one for one in named if may_start(one)]
        for check in sorted(due, key=lambda one: (one.name not in wanted, self._due[one.name])):
            if len(self._running) >= AT_ONCE:
                return
            if check.name not in self._running and check.name not in self._left:
                self._start(check, now)

    def close(self) -> None:
        """End every run; checks start anew with the next `start_due`."""
        self._stop.set()
        until = time.monotonic() + _CLOSE_PATIENCE_S
        for thread in self._running.values():
            thread.join(max(0.0, until - time.monotonic()))
        self._stop = Event()
        self._due = dict.fromkeys(self._due, self._monotonic())

    def _broken(self) -> list[Run]:
        """Runs whose thread ended without a word: a bug of ours, said and not waited for."""
        # A thread that is seen to have ended has put its run into the queue before.
        names = [name for name, thread in self._running.items() if not thread.is_alive()]
        if not names or not self._finished.empty():
            return []
        for name in names:
            del self._running[name]
        broken = Outcome(None, "internal_error")
        return [
            Run(check, self._clock(), broken, "Report this bug.")
            for check in self._checks
            if check.name in names
        ]

    def _start(self, check: CheckDefinition, now: float) -> None:
        missed = (now - self._due[check.name]) // check.interval_s
        self._due[check.name] += check.interval_s * (1 + missed)
        thread = Thread(
            target=self._run, args=(check, self._stop), name=f"check-{check.name}", daemon=True
        )
        self._running[check.name] = thread
        thread.start()

    def _run(self, check: CheckDefinition, stop: Event) -> None:
        began_at = self._clock()
        refused = refusal(Path(check.command[0]))
        if refused is not None:
            outcome = Outcome(None, "refused", errors=refused.reason.encode())
            self._finished.put(Run(check, began_at, outcome, refused.mend))
            return
        outcome = run_check(check.command, check.environment, check.deadline_s, stop)
        self._finished.put(Run(check, began_at, outcome))
