"""Looks at ports between two collections: one that goes down is told within a second or so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from gpuwarden_agent.collectors.contract import Glancing
from gpuwarden_agent.logs import get_logger
from gpuwarden_agent.threads import tell_kernel_my_name

_log = get_logger("port_watch")

_IDLE_INTERVALS = 10
"""A node without any port is looked at so much less often."""

PATIENCE_S = 0.4
"""A look that lasts longer hangs in the port's driver; one is over within some microseconds."""

_Port = tuple[str, str]
"""(collector, port)"""


class PortWatch:
    """One thread that only reads state files; where a driver holds it up, collection goes on.

    Where one port holds it up, another thread goes on with the others; the first looks no further
    when it comes back, and its port is looked at with the others again. So there are as many
    threads as ports that hang, and one. `look_after` finds that out, from a thread that is awake
    anyway: until then, an ordinary interval at most, the other ports wait for their collection.

    Args:
        collectors: By name.
        hurry: Lets a collector be called at once.
        interval_s: Seconds between two looks.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        collectors: Mapping[str, Glancing],
        hurry: Callable[[str], None],
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collectors = collectors
        self._hurry = hurry
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[_Port, str] = {}
        self._held: set[_Port] = set()
        self._in_hand: tuple[_Port, float] | None = None
        self._stop = threading.Event()
        self._thread = self._another()

    def start(self) -> None:
        """Begin."""
        if self._collectors:
            self._thread.start()

    def stop(self) -> None:
        """Make no further look; one that hangs is left alone."""
        self._stop.set()

    @property
    def held(self) -> tuple[_Port, ...]:
        """Ports whose look has not come back, as far as that was found out."""
        return tuple(sorted(self._held))

    def look_after(self) -> None:
        """Where a port holds up the others, go on without it; cheap where none does."""
        in_hand = self._in_hand
        if in_hand is None or self._clock() - in_hand[1] < PATIENCE_S:
            return
        with self._lock:
            if self._in_hand is not in_hand or self._stop.is_set():
                return
            self._held.add(in_hand[0])
            self._in_hand = None
            self._thread = self._another()
            self._thread.start()

    def _another(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="ports", daemon=True)

    def _run(self) -> None:
        tell_kernel_my_name()
        pause_s = self._interval_s
        while not self._stop.wait(pause_s):
            found = False
            for name, collector in self._collectors.items():
                ports = collector.ports()
                if not self._look(name, collector, ports):
                    return  # another thread goes on
                found = found or bool(ports)
            pause_s = self._interval_s * (1 if found else _IDLE_INTERVALS)

    def _look(self, name: str, collector: Glancing, ports: tuple[str, ...]) -> bool:
        """Look at all ports of a collector; False where one held us up and we were replaced."""
        changed = False
        for port in ports:
            key = name, port
            if key in self._held:
                continue
            in_hand = self._in_hand = key, self._clock()
            now = self._glance(name, collector, port)
            with self._lock:
                if self._in_hand is not in_hand:
                    self._held.discard(key)
                    return False
                self._in_hand = None
            if now is not None:
                changed = changed or self._seen.get(key, now) != now
                self._seen[key] = now
        if changed:
            self._hurry(name)
        return True

    @staticmethod
    def _glance(name: str, collector: Glancing, port: str) -> str | None:
        try:
            return collector.glance(port)
        except Exception:
            _log.exception("glance_bug", collector=name)
            return None
