"""Repeats of a kernel message: the first goes out at once, the rest of 5 s as one with a count."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwarden_wire.events import Backlog, Event

WINDOW_S = 5.0
MAX_OPEN = 256
"""Messages whose repeats are awaited at once; beyond, the oldest window closes early."""

_Key = tuple[str, int | None, int | None, str | None, str, Backlog, bool]


class _Window:
    __slots__ = ("closes_at", "first_at", "rest")

    def __init__(self, first_at: float, closes_at: float) -> None:
        self.first_at = first_at
        self.closes_at = closes_at
        self.rest: Event | None = None


class RepeatMerger:
    """Merges messages equal to the letter.

    A new kind is never merged away, nor news into old, nor the kernel's own words into words that
    anybody may have written.
    """

    def __init__(self) -> None:
        self._windows: dict[_Key, _Window] = {}

    def take(self, event: Event, now: float) -> list[Event]:
        """One message.

        Args:
            event: The message; its `observed_at` tells repeats of a backlog apart.
            now: Monotonic seconds.

        Returns:
            What goes out now: the message itself where it is the first of its window.
        """
        unproven = bool(event.attributes.get("unproven"))
        told = (event.family, event.xid, event.sxid, event.pci_bus_id, event.text)
        key = (*told, event.backlog, unproven)
        window = self._windows.get(key)
        if window is not None and abs(event.observed_at - window.first_at) < WINDOW_S:
            rest = window.rest
            count = rest.count + event.count if rest else event.count
            window.rest = msgspec.structs.replace(rest or event, count=count)
            return []
        closed = self._close([key] if window is not None else [])
        if len(self._windows) >= MAX_OPEN:
            closed += self._close([next(iter(self._windows))])
        self._windows[key] = _Window(event.observed_at, now + WINDOW_S)
        return [*closed, event]

    def due(self, now: float) -> list[Event]:
        """Merged repeats whose window has ended; monotonic seconds."""
        ended = []
        for key, window in self._windows.items():
            if window.closes_at > now:
                break  # windows are in order of opening
            ended.append(key)
        return self._close(ended)

    def pending(self) -> tuple[Event, ...]:
        """Merged repeats that have not gone out."""
        return tuple(window.rest for window in self._windows.values() if window.rest is not None)

    def rest(self) -> list[Event]:
        """Everything that has not gone out; closes all windows."""
        return self._close(list(self._windows))

    def _close(self, keys: Iterable[_Key]) -> list[Event]:
        rests = [self._windows.pop(key).rest for key in keys]
        return [rest for rest in rests if rest is not None]
