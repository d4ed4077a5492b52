"""Looks at ports between two collections: one that goes down is told within a second or so."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from gpuwarden_agent.collectors.contract import Glancing
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.threads import tell_kernel_my_name

_log = get_logger("port_watch")

_IDLE_INTERVALS = 10
"""A node without any port is looked at so much less often."""


class PortWatch:
    """One thread that only reads state files; where a driver holds it up, collection goes on.

    Args:
        collectors: By name.
        hurry: Lets a collector be called at once.
        interval_s: Seconds between two looks.
    """

    def __init__(
        self, collectors: Mapping[str, Glancing], hurry: Callable[[str], None], interval_s: float
    ) -> None:
        self._collectors = collectors
        self._hurry = hurry
        self._interval_s = interval_s
        self._seen: dict[str, tuple[str, ...]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ports", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._collectors:
            self._thread.start()

    def stop(self) -> None:
        """Make no further look; one that hangs is left alone."""
        self._stop.set()

    def _run(self) -> None:
        tell_kernel_my_name()
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            found = [self._look(name, one) for name, one in self._collectors.items()]
            pause_s = self._interval_s * (1 if any(found) else _IDLE_INTERVALS)

    def _look(self, name: str, collector: Glancing) -> bool:
        """Whether there is anything to look at."""
        try:
            now = collector.glance()
        except Exception:
            _log.exception("glance_bug", collector=name)
            return False
        before = self._seen.get(name, now)
        self._seen[name] = now
        if now != before:
            self._hurry(name)
        return bool(now)
