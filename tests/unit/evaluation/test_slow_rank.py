"""The slow rank: the same part first, then the place; what was swapped starts anew."""

from __future__ import annotations

from gpuwarden_verdict.slow_rank import Because, RankWindows, Seat, SevereEvent, rank_seats

DAY = 86400.0
NOW = 1000 * DAY
WINDOWS = RankWindows(part_s=180 * DAY, place_s=60 * DAY, half_life_s=30 * DAY)


def event(part: str, place: str, days_ago: float) -> SevereEvent:
    return SevereEvent(part, place, NOW - days_ago * DAY)


def test_a_part_with_an_event_goes_before_any_place() -> None:
    seats = [Seat("new", "p1"), Seat("old", "p2")]
    history = [event("gone", "p1", 1), event("gone", "p1", 2), event("old", "elsewhere", 170)]
    ranked = rank_seats(seats, history, NOW, WINDOWS)
    assert [(one.seat.part, one.because) for one in ranked] == [
        ("old", Because.PART),
        ("new", Because.PLACE),
    ]


def test_the_part_keeps_its_past_when_it_moves_and_a_swapped_one_has_none() -> None:
    history = [event("a", "p1", 10)]
    moved = rank_seats([Seat("a", "p9")], history, NOW, WINDOWS)
    assert moved[0].because is Because.PART
    swapped = rank_seats([Seat("b", "p1")], history, NOW, WINDOWS)
    assert swapped[0].because is Because.PLACE


def test_recent_and_repeated_events_weigh_more() -> None:
    seats = [Seat(name, name) for name in ("once", "twice", "long_ago")]
    history = [event("once", "x", 5), event("twice", "y", 5), event("twice", "y", 20)]
    history.append(event("long_ago", "z", 100))
    ranked = rank_seats(seats, history, NOW, WINDOWS)
    assert [one.seat.part for one in ranked] == ["twice", "once", "long_ago"]
    assert (ranked[0].events, ranked[0].last_event_at) == (2, NOW - 5 * DAY)


def test_what_is_too_old_or_still_to_come_does_not_count() -> None:
    seats = [Seat("a", "p1"), Seat("b", "p2")]
    history = [event("a", "p8", 181), event("x", "p2", 61), event("b", "p2", -1)]
    assert rank_seats(seats, history, NOW, WINDOWS) == []


def test_the_order_does_not_hang_on_that_of_the_input() -> None:
    seats = [Seat(f"part{number}", f"place{number}") for number in range(20)]
    history = [event(f"part{number}", "x", 3 + number % 4) for number in range(20)]
    forward = rank_seats(seats, history, NOW, WINDOWS)
    backward = rank_seats(seats[::-1], history[::-1], NOW, WINDOWS)
    assert forward == backward


def test_parts_without_a_name_share_no_past() -> None:
    assert rank_seats([Seat("", "p1")], [event("", "p2", 1)], NOW, WINDOWS) == []
