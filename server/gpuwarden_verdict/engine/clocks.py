"""What agents' clocks are worth: they inform, and the order of arrival decides. Pure.

A clock that is ahead at boot and corrected later makes what happens afterwards look older than what
came before. Two things are known for sure: nothing happened after it was received, and a spool
hands its batches over in the order in which they were made.
"""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec

from gpuwarden_verdict.engine.events import HISTORY_FLAGS, EventFlag, StoredEvent
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.events import Event, EventKind

ROOM_S = 1.0
"""How far a clock that is kept by NTP is turned back at most without our taking notice."""

_MOST_AHEAD_S = 86_400.0
"""A clock that was further ahead than this is remembered as so much ahead."""

_MARKS = frozenset({EventKind.NODE_BOOT, EventKind.CHECK_PASSED})
"""What later events are held against by time."""


def told_boot(event: Event) -> float | None:
    """When the node booted, epoch seconds, as a boot event tells; None where that is no time."""
    told = event.attributes.get("booted_at") if event.kind is EventKind.NODE_BOOT else None
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    return float(told) if math.isfinite(told) and told > 0 else None


def tells_no_time(event: Event) -> bool:
    """Whether a boot event has a time of boot that is none."""
    told = event.attributes.get("booted_at") if event.kind is EventKind.NODE_BOOT else None
    return told is not None and told_boot(event) is None


def booted_at(event: Event, received_at: float) -> float | None:
    """When the node booted, epoch seconds, at the latest.

    How long it had been up is the difference of two times of one clock, right however wrong that
    clock is: it was up for at least as long when the event was received.
    """
    told = told_boot(event)
    if told is None:
        return None
    up_s = max(0.0, event.observed_at - told)
    return min(told, received_at - up_s)


def clock_after(clock_high: float, batch: Batch, event: Event, received_at: float) -> float:
    """The latest time that a spool's clock has shown, once an event was seen.

    Args:
        clock_high: Before it, epoch seconds; 0 before the first.
        batch: Its batch.
        event: The event; only what later events are held against by time counts.
        received_at: Server's epoch seconds.
    """
    shown = max(batch.sent_at, event.observed_at if event.kind in _MARKS else 0.0)
    return max(clock_high, min(shown, received_at + _MOST_AHEAD_S))


def was_turned_back(clock_high: float, batch: Batch) -> bool:
    """Whether the clock showed a later time before this batch was made."""
    return batch.sent_at < clock_high - ROOM_S


def in_our_time(stored: StoredEvent) -> StoredEvent:
    """The event with the time that it is judged by: never after its receipt.

    Where the agent's clock was turned back since an earlier batch, its times order nothing: news
    happened when it was received.
    """
    at = stored.event.observed_at
    news = not (HISTORY_FLAGS | {EventFlag.FIRST_LOOK}) & stored.flags
    if at <= stored.received_at and not (news and EventFlag.CLOCK_BACK in stored.flags):
        return stored
    event = msgspec.structs.replace(stored.event, observed_at=stored.received_at)
    return replace(stored, event=event)
