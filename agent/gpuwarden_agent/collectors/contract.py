"""What a collector is: the whole contract."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event as StopFlag
from typing import Protocol, runtime_checkable

from gpuwarden_wire.events import Event, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Rows

Emit = Callable[[Sequence[Event]], None]
"""Hands events over: they are on disk in the spool when it returns, and are flushed at once."""


class Conditions(Protocol):
    """Takes what works and what does not; tells each change once, as own trouble."""

    def trouble(self, source: str, reason: str, mend: str = "", *, renew: bool = False) -> None:
        """A part does not do its work, for a short stable reason; `renew` tells another reason."""
        ...

    def fine(self, source: str) -> None:
        """A part does its work."""
        ...


class PositionStore(Protocol):
    """Keeps how far a follower has read, in one transaction with what it found there.

    A follower that uses it neither loses nor doubles anything over a restart or a crash.
    """

    def load_position(self, follower: str) -> bytes | None:
        """What was last committed under this name; None at the first start."""
        ...

    def commit_position(self, follower: str, position: bytes, events: Sequence[Event]) -> None:
        """Store events and position together: both are on disk when it returns, or neither is."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """A standing condition that an operator should know of; told when it begins and when it ends.

    Attributes:
        reason: Short stable phrase.
        mend: What the operator can do about it.
    """

    reason: str
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Harvest:
    """What one call of a collector brought.

    Attributes:
        rows: Readings by kind of entity.
        events: Facts found on the way (a GPU lost, a device gone).
        inventory: This collector's share (its own fields only), None where unchanged.
        notices: All conditions that stand now, by what they are about.
        urgent: Something changed that others are not waited for with; set by the scheduler.
    """

    rows: Mapping[EntityKind, Rows] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    inventory: Inventory | None = None
    notices: Mapping[str, Notice] = field(default_factory=dict)
    urgent: bool = False


FIRST_ROUND = "first_round"
"""Reason of a reading that needs two rounds, such as a gap between them."""


class CollectorError(Exception):
    """The source could not be read at all.

    Attributes:
        reason: Short stable phrase that becomes the reason of every missing reading.
        mend: What the operator can do about it.
    """

    def __init__(self, reason: str, mend: str = "") -> None:
        super().__init__(f"{reason}. {mend}" if mend else reason)
        self.reason = reason
        self.mend = mend


class Collector(Protocol):
    """Reads one subsystem periodically.

    The scheduler calls `collect` never twice at once. Collectors that answer at once take turns on
    one thread; one that holds others up is left alone with its thread from then on. A call that is
    past `deadline_s` is reported as trouble; the other collectors go on.
    """

    @property
    def name(self) -> str:
        """Stable snake_case name, as in settings and metrics."""
        ...

    @property
    def interval_s(self) -> float:
        """Cadence in seconds."""
        ...

    @property
    def deadline_s(self) -> float:
        """Seconds after which a call counts as stuck."""
        ...

    def collect(self, now: float) -> Harvest:
        """Read everything once; `now` is epoch seconds.

        Raises:
            CollectorError: The source as a whole could not be read; single readings that fail are
                `Unavailable` instead.
        """
        ...

    def close(self) -> None:
        """Release every handle; a later `collect` takes them anew."""
        ...


@runtime_checkable
class Lingering(Protocol):
    """A collector whose handles may outlast `close`."""

    def held(self) -> str:
        """After `close`: what is not released yet, in words; "" for nothing."""
        ...


@runtime_checkable
class Glancing(Protocol):
    """A collector that may be asked between two calls whether it is worth to call it at once."""

    def ports(self) -> tuple[str, ...]:
        """What there is to look at, by names of the collector's own."""
        ...

    def glance(self, port: str) -> str:
        """What announces a fault of a port, as raw as it is cheap.

        Called from other threads, never twice at once for one port; may hang with its driver.
        """
        ...


class EventFollower(Protocol):
    """Waits for events in a thread of its own and hands them over as they come."""

    @property
    def name(self) -> str:
        """Stable snake_case name, as in settings and metrics."""
        ...

    def follow(self, emit: Emit, stop: StopFlag) -> None:
        """Run until `stop` is set, which is looked at at least once a second, or after `wake`.

        Raises:
            CollectorError: The source could not be opened or is gone; the scheduler reports it and
                tries again with backoff.
        """
        ...


@runtime_checkable
class Wakeable(Protocol):
    """A follower that may wait for long: what wakes each second costs more than what it does."""

    def wake(self) -> None:
        """Return from any wait at once, so that `stop` is seen."""
        ...
