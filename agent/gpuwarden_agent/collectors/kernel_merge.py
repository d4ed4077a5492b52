"""Repeats of a kernel message: the first goes out at once, the rest of 5 s as one with a count.

Two storms are held back. The same message again and again is one event and one with a count in 5 s.
Messages that differ in numbers only (addresses, processes, counters) are of one kind: each kind has
a budget, and what is beyond it goes out as one event in 5 s, with a count. The first message of a
kind goes out at once, whatever else is going on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from gpuwarden_wire.events import Event

WINDOW_S = 5.0
MAX_OPEN = 256
"""Messages whose repeats are awaited at once; beyond, the oldest window closes early."""

BURST = 16
"""Messages of one kind that go out as they come; one more for each `WINDOW_S`."""

MAX_SUBJECTS = 2_048
"""Subjects whose budgets are remembered; the one unheard of for longest starts anew."""

MAX_WORDINGS = 16
"""Kinds of one subject; what is worded otherwise still shares one budget."""

DIFFERING = "differing"
"""Attribute: how many of the merged lines had other numbers than the text that is shown."""

_Subject = tuple[object, ...]
_Key = tuple[_Subject, str | int]  # the text of repeats, or the wording of a whole kind

# What tells two messages of a family apart for whoever acts on them.
_JUDGED = ("action", "fault_class", "application_possible", "acts_alone", "echo", "unproven")

_ANY_WORDING = 0

# Numbers and addresses: "pid=4711", "0x7f3b_1c000000", "be00000000800400", "2023-01-05"
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]*\d[0-9a-fA-F_]*|\d[0-9a-fA-F_]*")


class _Window:
    """Repeats that have not gone out.

    Attributes:
        first_at: Epoch seconds of the message that opened it.
        closes_at: Monotonic seconds.
        rest: The first of the repeats.
        count: Lines among the repeats.
        differing: Those of them with another text than `rest`.
    """

    __slots__ = ("closes_at", "count", "differing", "first_at", "rest")

    def __init__(self, first_at: float, closes_at: float) -> None:
        self.first_at = first_at
        self.closes_at = closes_at
        self.rest: Event | None = None
        self.count = 0
        self.differing = 0

    def holds(self, event: Event) -> bool:
        """Whether a message was written within the window."""
        return abs(event.observed_at - self.first_at) < WINDOW_S

    def add(self, event: Event) -> None:
        """Count a repeat."""
        if self.rest is None:
            self.rest = event
        elif event.text != self.rest.text:
            self.differing += event.count
        self.count += event.count

    def merged(self) -> Event | None:
        """The repeats as one event."""
        if self.rest is None:
            return None
        if not self.differing:
            return msgspec.structs.replace(self.rest, count=self.count)
        attributes = {**self.rest.attributes, DIFFERING: self.differing}
        return msgspec.structs.replace(self.rest, count=self.count, attributes=attributes)


class _Budget:
    """How many messages of one kind may still go out one by one."""

    __slots__ = ("_at", "_left")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._at: float | None = None

    def spend(self, at: float) -> bool:
        """Take one, for a message that was written at `at`, epoch seconds."""
        if self._at is not None and at > self._at:
            self._left = min(float(BURST), self._left + (at - self._at) / WINDOW_S)
        self._at = at if self._at is None else max(at, self._at)
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class RepeatMerger:
    """Merges repeats.

    A new kind is never merged away, nor news into old, nor the kernel's own words into words that
    anybody may have written. Memory is bounded by the constants above, whatever the log holds.
    """

    def __init__(self) -> None:
        self._windows: dict[_Key, _Window] = {}
        self._budgets: dict[_Subject, dict[int, _Budget]] = {}

    def take(self, event: Event, now: float) -> list[Event]:
        """One message.

        Args:
            event: The message; its `observed_at` tells repeats of a backlog apart.
            now: Monotonic seconds.

        Returns:
            What goes out now: the message itself where its kind has some of its budget left.
        """
        subject = _subject_of(event)
        key = (subject, event.text)
        window = self._windows.get(key)
        if window is not None and window.holds(event):
            window.add(event)
            return []
        wording, budget = self._budget(subject, event)
        if budget.spend(event.observed_at):
            return [*self._open(key, event, now), event]
        return self._add_alike((subject, wording), event, now)

    def due(self, now: float) -> list[Event]:
        """Merged repeats whose window has ended; monotonic seconds."""
        ended = []
        for key, window in self._windows.items():
            if window.closes_at > now:
                break  # windows are in order of opening
            ended.append(key)
        return self._close(ended)

    @property
    def waits(self) -> bool:
        """Whether a window is open that will end."""
        return bool(self._windows)

    def pending(self) -> tuple[Event, ...]:
        """Merged repeats that have not gone out."""
        merged = (window.merged() for window in self._windows.values())
        return tuple(rest for rest in merged if rest is not None)

    def rest(self) -> list[Event]:
        """Everything that has not gone out; closes all windows."""
        return self._close(list(self._windows))

    def _add_alike(self, key: _Key, event: Event, now: float) -> list[Event]:
        """Count a message among those of its kind; what closes for it goes out."""
        closed: list[Event] = []
        window = self._windows.get(key)
        if window is None or not window.holds(event):
            closed = self._open(key, event, now)
        self._windows[key].add(event)
        return closed

    def _open(self, key: _Key, event: Event, now: float) -> list[Event]:
        """Open a window anew; what closes for it goes out."""
        closed = self._close([key] if key in self._windows else [])
        if len(self._windows) >= MAX_OPEN:
            closed += self._close([next(iter(self._windows))])
        self._windows[key] = _Window(event.observed_at, now + WINDOW_S)
        return closed

    def _budget(self, subject: _Subject, event: Event) -> tuple[int, _Budget]:
        """The wording that a message is known by, and the budget of its kind."""
        known = self._budgets.pop(subject, None)
        if known is None:
            known = {}
            if len(self._budgets) >= MAX_SUBJECTS:
                del self._budgets[next(iter(self._budgets))]
        self._budgets[subject] = known  # the last heard of stands last
        wording = _wording_of(event)
        if wording not in known and len(known) >= MAX_WORDINGS:
            wording = _ANY_WORDING
        return wording, known.setdefault(wording, _Budget())

    def _close(self, keys: Iterable[_Key]) -> list[Event]:
        merged = [self._windows.pop(key).merged() for key in keys]
        return [rest for rest in merged if rest is not None]


def _subject_of(event: Event) -> _Subject:
    """What a message is about; nothing here can be had by an unprivileged program at will."""
    judged = tuple(event.attributes.get(name) for name in _JUDGED)
    return (
        event.family,
        event.xid,
        event.sxid,
        event.pci_bus_id,
        event.entity,
        event.device,
        event.severity,
        event.backlog,
        judged,
    )


def _wording_of(event: Event) -> int:
    """Stands for a message without what varies from line to line: numbers, a program's name."""
    text = event.text
    if event.process:
        text = re.sub(rf"(?<!\w){re.escape(event.process)}(?!\w)", "#", text)
    return hash(_NUMBER.sub("#", text))
