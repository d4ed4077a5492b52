"""Which parts of the agent work: trouble is told once, and recovery once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from gpuwarden_agent.collectors.contract import Emit
from gpuwarden_agent.collectors.trouble import recovered_event, trouble_event
from gpuwarden_agent.logs import get_logger

_log = get_logger("conditions")


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
    """Keeps the condition of every part; emits an event on each change. Thread-safe.

    Args:
        emit: Takes the events.
        boot_id: Present boot.
        clock: Epoch seconds.
        remember: Keeps the names of what is in trouble over a restart; see `end_former`.
    """

    def __init__(
        self,
        emit: Emit,
        boot_id: str,
        clock: Callable[[], float] = time.time,
        remember: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._emit = emit
        self._boot_id = boot_id
        self._clock = clock
        self._remember = remember
        self._lock = threading.Lock()
        self._troubles: dict[str, Trouble] = {}

    def end_former(self, remembered: str | None) -> None:
        """Take back the trouble that an earlier run told: what still holds is told anew.

        Args:
            remembered: What `remember` was last given, None where it never was.
        """
        try:
            sources = msgspec.json.decode(remembered or "[]", type=list[str])
        except msgspec.DecodeError:
            return
        now = self._clock()
        if sources:
            self._emit([recovered_event(source, self._boot_id, now) for source in sources])
            self._remember("[]")

    def trouble(self, source: str, reason: str, mend: str = "", *, renew: bool = False) -> None:
        """A part does not work; only the first call of a spell is told.

        Args:
            source: The part.
            reason: Short stable phrase.
            mend: What the operator can do about it.
            renew: Tell it again where the reason is another one by now.
        """
        now = self._clock()
        with self._lock:
            known = self._troubles.get(source)
            if known is not None and not (renew and known.reason != reason):
                return
            self._troubles[source] = Trouble(reason, mend, known.since if known else now)
        self._keep_names()
        _log.warning("trouble", source=source, reason=reason, mend=mend)
        self._emit([trouble_event(source, reason, mend, self._boot_id, now)])

    def fine(self, source: str) -> None:
        """A part works; told where it did not before."""
        if source not in self._troubles:
            return  # as all the time
        now = self._clock()
        with self._lock:
            trouble = self._troubles.pop(source, None)
        if trouble is None:
            return
        self._keep_names()
        _log.info("recovered", source=source, after_s=round(now - trouble.since, 1))
        self._emit([recovered_event(source, self._boot_id, now)])

    def _keep_names(self) -> None:
        self._remember(msgspec.json.encode(sorted(self.troubles())).decode())

    def troubles(self) -> dict[str, Trouble]:
        """Parts that do not work now."""
        with self._lock:
            return dict(self._troubles)
