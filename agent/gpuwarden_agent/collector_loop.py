"""The calls of one collector: when each is due, and what becomes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from gpuwarden_agent.collectors.contract import (
    Collector,
    CollectorError,
    Harvest,
    Lingering,
    Notice,
)
from gpuwarden_agent.conditions import ConditionBoard
from gpuwarden_agent.harvest_check import sound
from gpuwarden_agent.logs import get_logger

_log = get_logger("scheduler")


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


class CollectorLoop:
    """Calls one collector on a fixed cadence, in turns that a crew gives; see `crew.Turn`."""

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
        self._wake: Callable[[], None] = _nobody
        self._due = 0.0
        self._begun = False
        self._wanted = True
        self._hurried = False
        self._released = False
        self._running_since: float | None = None
        self._told_stuck_at = 0.0
        self._noticed: set[str] = set()

    @property
    def name(self) -> str:
        """Name of the collector."""
        return self.collector.name

    @property
    def due(self) -> float:
        """Monotonic seconds of the next call."""
        return -math.inf if self._hurried and self._wanted else self._due

    @property
    def is_in_flight(self) -> bool:
        """A call has not come back yet."""
        return self._running_since is not None

    def begin(self, now: float, wake: Callable[[], None]) -> None:
        """Be due from monotonic `now` on, whence the cadence counts.

        Args:
            now: Monotonic seconds.
            wake: Called when the next call is due earlier than it was.
        """
        self._due, self._wake, self._begun = now, wake, True

    def move(self, wake: Callable[[], None]) -> None:
        """Another thread makes the calls from now on."""
        self._wake = wake

    def take(self) -> None:
        """Make the call that is due, or the one more that somebody wished for."""
        began, due = time.monotonic(), self._due
        hurried, self._hurried = self._hurried, False
        if self._wanted:
            self._released = False
            self._call(urgent=hurried)
        else:
            self._rest()
        if began >= due == self._due:  # else it was paused or resumed meanwhile, and is due anew
            self._due = self._next_due(due)

    def _next_due(self, due: float) -> float:
        """In phase with `due`; what was missed is skipped."""
        interval = self.collector.interval_s
        late = time.monotonic() - due - interval
        return due + interval * (1 + max(0.0, -(-late // interval)))

    def hurry(self) -> None:
        """Make one call more at once, whose readings are sealed without waiting for others."""
        self._hurried = True
        self._wake()

    def _rest(self) -> None:
        if not self._released:
            self.close()
            self._released = True
        self._sink.paused(self.collector.name, self._clock())

    def close(self) -> None:
        """Release the collector; between calls."""
        try:
            self.collector.close()
        except Exception:
            _log.exception("collector_bug_at_close", collector=self.collector.name)

    def pause(self) -> None:
        """Make no further call, and release the collector when the call in flight has ended."""
        self._wanted = False
        self._due = time.monotonic()
        self._wake()

    def resume(self) -> None:
        """Go on at once."""
        self._wanted = True
        self._due = time.monotonic()
        self._wake()

    def held(self) -> str:
        """While paused: what is not released yet, in words; "" for nothing."""
        if self._begun and not self._released:
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
        since = self._running_since
        if since is None or (now := time.monotonic()) - since < self.collector.deadline_s:
            return
        self._board.trouble(
            self.collector.name,
            "deadline_exceeded",
            f"One call takes more than {self.collector.deadline_s:g} s; the others go on.",
        )
        if now - self._told_stuck_at >= self.collector.interval_s:
            self._told_stuck_at = now
            self._sink.stuck(self.collector.name, now - since, self._clock())


def _nobody() -> None:
    return
