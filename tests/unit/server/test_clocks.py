"""Agents' clocks inform; nothing is later than its receipt, and order is the order of arrival."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from gpuwarden_verdict.engine.clocks import (
    booted_at,
    clock_after,
    in_our_time,
    tells_no_time,
    told_boot,
    was_turned_back,
)
from gpuwarden_verdict.engine.events import EventFlag, StoredEvent
from gpuwarden_verdict.entities import EntityRef
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

NOW, HOUR = 1_800_000_000.0, 3600.0


def boot(told: object, observed_at: float = NOW) -> Event:
    attributes = {} if told is None else {"booted_at": told}
    return Event(
        id="b",
        kind=EventKind.NODE_BOOT,
        observed_at=observed_at,
        attributes=attributes,  # type: ignore[arg-type]  # some are what no agent should send
    )


def check(observed_at: float) -> Event:
    return Event(id="c", kind=EventKind.CHECK_PASSED, observed_at=observed_at)


def batch(sent_at: float) -> Batch:
    return Batch(
        version=WIRE_VERSION,
        node_id="n",
        spool_id="0" * 32,
        stream=Stream.EVENTS,
        seq=1,
        boot_id="b",
        agent_version="",
        sent_at=sent_at,
    )


@pytest.mark.parametrize("told", [-5, 0, float("nan"), float("inf"), "x", True, [1.0]])
def test_what_is_no_time_is_left_out_and_said(told: object) -> None:
    assert told_boot(boot(told)) is None
    assert tells_no_time(boot(told))
    assert booted_at(boot(told), NOW) is None


def test_a_boot_that_tells_no_time_says_nothing_wrong() -> None:
    assert booted_at(boot(None), NOW) is None
    assert not tells_no_time(boot(None))


@pytest.mark.parametrize(
    ("told", "observed", "received", "latest"),
    [
        (NOW - 600, NOW, NOW, NOW - 600),
        (NOW - 600, NOW, NOW + HOUR, NOW - 600),  # it waited: the clock was right
        (NOW + HOUR - 600, NOW + HOUR, NOW, NOW - 600),  # the clock was an hour ahead
        (NOW + HOUR, NOW, NOW, NOW),  # and was set between the two readings
        (1e308, NOW, NOW, NOW),
        (NOW - HOUR - 600, NOW - HOUR, NOW, NOW - HOUR - 600),  # behind: so are all its times
    ],
)
def test_a_boot_was_at_the_latest_so_long_before_its_receipt_as_the_node_was_up(
    told: float, observed: float, received: float, latest: float
) -> None:
    assert booted_at(boot(told, observed), received) == latest


def test_a_clock_that_was_turned_back_is_told_by_the_order_of_batches() -> None:
    high = clock_after(0.0, batch(NOW), check(NOW), NOW)
    assert not was_turned_back(high, batch(NOW + 5))
    assert not was_turned_back(high, batch(NOW - 0.1)), "NTP keeping time"
    assert was_turned_back(high, batch(NOW - HOUR))
    ahead = clock_after(high, batch(NOW), check(NOW + HOUR), NOW)
    assert was_turned_back(ahead, batch(NOW + 5))
    line = Event(id="k", kind=EventKind.KERNEL_LOG, observed_at=NOW + HOUR)
    assert clock_after(high, batch(NOW), line, NOW) == NOW, "nothing is held against a line's time"
    absurd = clock_after(high, batch(NOW), check(1e300), NOW)
    assert not was_turned_back(absurd, batch(NOW + 25 * HOUR)), "not for ever"


def seen_at(observed_at: float, flags: Collection[EventFlag] = ()) -> float:
    ref = EntityRef(EntityKind.NODE, "n", "n")
    stored = StoredEvent(1, check(observed_at), ref, "n", "b", NOW, frozenset(flags))
    return in_our_time(stored).event.observed_at


def test_an_event_is_judged_by_a_time_that_is_never_after_its_receipt() -> None:
    assert seen_at(NOW - 7) == NOW - 7
    assert seen_at(NOW + HOUR) == NOW
    assert seen_at(NOW - HOUR, {EventFlag.CLOCK_BACK}) == NOW
    for old in (EventFlag.OLDER_BOOT, EventFlag.HISTORY, EventFlag.FIRST_LOOK):
        assert seen_at(NOW - HOUR, {EventFlag.CLOCK_BACK, old}) == NOW - HOUR
