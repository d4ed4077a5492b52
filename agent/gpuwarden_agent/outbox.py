"""The way out for events: into the spool, counted, and the sender woken."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from gpuwarden_agent.spool.spool import Spool
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Event

XidKey = tuple[str, int, str]
"""(gpu_uuid or "pci:ADDRESS", code, "nvml" or "kernel_log")"""

_MAX_XID_KEYS = 4_096


class Outbox:
    """Takes events from all threads: the collectors' `Emit` and the followers' `PositionStore`."""

    def __init__(self, spool: Spool, wake: Callable[[Stream], None]) -> None:
        self._spool = spool
        self._wake = wake
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self._families: Counter[str] = Counter()
        self._xids: Counter[XidKey] = Counter()
        self._xid_seen_at: dict[XidKey, float] = {}

    def emit(self, events: Sequence[Event]) -> None:
        """Events are on disk when this returns, and on their way."""
        self._store(events, None)

    def load_position(self, follower: str) -> bytes | None:
        """What a follower committed last."""
        return self._spool.position(follower)

    def commit_position(self, follower: str, position: bytes, events: Sequence[Event]) -> None:
        """Store events and a follower's position together."""
        self._store(events, (follower, position))

    def _store(self, events: Sequence[Event], position: tuple[str, bytes] | None) -> None:
        self._spool.append_events(events, position)
        if events:
            self._wake(Stream.EVENTS)
            self._count(events)

    def _count(self, events: Sequence[Event]) -> None:
        with self._lock:
            for event in events:
                self._kinds[event.kind] += event.count
                if event.family:
                    self._families[event.family] += event.count
                if event.xid is not None:
                    self._count_xid(event, event.xid)

    def _count_xid(self, event: Event, xid: int) -> None:
        source = "kernel_log" if event.family else "nvml"
        key = (event.entity or f"pci:{event.pci_bus_id or ''}", xid, source)
        if key not in self._xids and len(self._xids) >= _MAX_XID_KEYS:
            return
        self._xids[key] += event.count
        self._xid_seen_at[key] = max(self._xid_seen_at.get(key, 0.0), event.observed_at)

    def kinds(self) -> dict[str, int]:
        """Events by kind, repeats counted."""
        with self._lock:
            return dict(self._kinds)

    def families(self) -> dict[str, int]:
        """Kernel lines by family, repeats counted."""
        with self._lock:
            return dict(self._families)

    def xids(self) -> dict[XidKey, tuple[int, float]]:
        """Count and time of the last, epoch seconds, of each XID on each GPU."""
        with self._lock:
            return {key: (count, self._xid_seen_at[key]) for key, count in self._xids.items()}
