"""Which parts of the agent work: trouble is told once, and recovery once."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuwarden_agent.collectors.contract import Emit
from gpuwarden_agent.collectors.trouble import recovered_event, trouble_event
from gpuwarden_agent.logs import get_logger

_log = get_logger("conditions")

_FACT = "troubles"


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

    What was told as trouble is remembered over restarts: the recovery is told by whichever process
    sees it.
    """

    def __init__(
        self,
        emit: Emit,
        boot_id: str,
        clock: Callable[[], float] = time.time,
        recall: Callable[[str], str | None] = lambda _: None,
        remember: Callable[[str, str], None] = lambda _name, _text: None,
    ) -> None:
        self._emit = emit
        self._remember = remember
        self._boot_id = boot_id
        self._clock = clock
        self._lock = threading.Lock()
        self._troubles: dict[str, Trouble] = {}
        self._told_before = set(_sources(recall(_FACT)))

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
            self._told_before.discard(source)
        self._keep()
        _log.warning("trouble", source=source, reason=reason, mend=mend)
        self._emit([trouble_event(source, reason, mend, self._boot_id, now)])

    def fine(self, source: str) -> None:
        """A part works; told where it did not before."""
        now = self._clock()
        with self._lock:
            if source not in self._troubles and source not in self._told_before:
                return
            trouble = self._troubles.pop(source, None)
            self._told_before.discard(source)
        self._keep()
        since = trouble.since if trouble is not None else now
        _log.info("recovered", source=source, after_s=round(now - since, 1))
        self._emit([recovered_event(source, self._boot_id, now)])

    def drop_all_but(self, sources: Iterable[str]) -> None:
        """Parts that were in trouble in an earlier run and that there are no more: it is over."""
        with self._lock:
            gone = sorted(self._told_before - set(sources))
        for source in gone:
            self.fine(source)

    def _keep(self) -> None:
        with self._lock:
            sources = sorted({*self._troubles, *self._told_before})
        self._remember(_FACT, json.dumps(sources))

    def troubles(self) -> dict[str, Trouble]:
        """Parts that do not work now."""
        with self._lock:
            return dict(self._troubles)


def _sources(text: str | None) -> list[str]:
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
