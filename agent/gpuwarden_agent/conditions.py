"""Which parts of the agent work: trouble is told once, and recovery once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from gpuwarden_agent.collectors.contract import Emit
from gpuwarden_agent.collectors.trouble import recovered_event, trouble_event

_log = structlog.get_logger("conditions")


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a part does not work.

    Attributes:
        reason: Short stable phrase.
        mend: What the operator can do about it.
        since: Epoch seconds.
    """

    reason: str
    mend: str
    since: float


class ConditionBoard:
    """Keeps the condition of every part; emits an event on each change. Thread-safe."""

    def __init__(self, emit: Emit, boot_id: str, clock: Callable[[], float] = time.time) -> None:
        self._emit = emit
        self._boot_id = boot_id
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles: dict[str, Trouble] = {}

    def trouble(self, source: str, reason: str, mend: str = "") -> None:
        """A part does not work; only the first call of a spell is told."""
        now = self._clock()
        with self._lock:
            if source in self._troubles:
                return
            self._troubles[source] = Trouble(reason, mend, now)
        _log.warning("trouble", source=source, reason=reason, mend=mend)
        self._emit([trouble_event(source, reason, mend, self._boot_id, now)])

    def fine(self, source: str) -> None:
        """A part works; told where it did not before."""
        now = self._clock()
        with self._lock:
            trouble = self._troubles.pop(source, None)
        if trouble is None:
            return
        _log.info("recovered", source=source, after_s=round(now - trouble.since, 1))
        self._emit([recovered_event(source, self._boot_id, now)])

    def troubles(self) -> dict[str, Trouble]:
        """Parts that do not work now."""
        with self._lock:
            return dict(self._troubles)
