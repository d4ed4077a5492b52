"""Where to put spares and whom to watch: parts and places ranked by their own severe past.

This is not the fast verdict. It looks at months, acts on nothing, and is a short list: seats whose
part or place has no severe event of late are not in it. On public records (docs/evaluation.md) a
recent severe event of the *same part* foretells the next far better than anything that is known of
the place; of the place, little is left once a part was swapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

_DAY_S = 86400.0


class Because(IntEnum):
    """Why a seat is in the list; a higher one goes first."""

    PLACE = 1  # severe events at the place, of whatever part sat there
    PART = 2  # severe events of the very part, wherever it sat


@dataclass(frozen=True, slots=True)
class SevereEvent:
    """A fault that took a part out of work; repeats of one fault are one event.

    Attributes:
        part: Serial of the part, else its UUID; it follows the part when that moves.
        place: Where it sat; stays when the part is swapped.
        at: Epoch seconds.
    """

    part: str
    place: str
    at: float


@dataclass(frozen=True, slots=True)
class Seat:
    """A part and where it sits now."""

    part: str
    place: str


@dataclass(frozen=True, slots=True)
class RankWindows:
    """How far back the rank looks.

    Attributes:
        part_s: Events of the part older than this do not count, seconds.
        place_s: Likewise of the place.
        half_life_s: An event this old counts half.
    """

    part_s: float = 90 * _DAY_S
    place_s: float = 60 * _DAY_S
    half_life_s: float = 30 * _DAY_S


@dataclass(frozen=True, slots=True)
class RankedSeat:
    """A seat of the list.

    Attributes:
        seat: The seat.
        because: What put it there.
        weight: Its events, each halved every half-life; > 0.
        events: How many events those are.
        last_event_at: The newest of them, epoch seconds.
    """

    seat: Seat
    because: Because
    weight: float
    events: int
    last_event_at: float


DEFAULT_WINDOWS = RankWindows()
"""Chosen on the tuning part of public records of GPUs, not on what they were measured on."""


@dataclass(slots=True)
class _Sum:
    """Events of one part or place."""

    weight: float = 0.0
    events: int = 0
    last_at: float = float("-inf")

    def add(self, at: float, weight: float) -> None:
        self.weight += weight
        self.events += 1
        self.last_at = max(self.last_at, at)


def rank_seats(
    seats: Sequence[Seat],
    history: Iterable[SevereEvent],
    now: float,
    windows: RankWindows = DEFAULT_WINDOWS,
) -> list[RankedSeat]:
    """Seats that have a severe event of late, those to be watched most first.

    Args:
        seats: Parts and where they sit now.
        history: Severe events of any part at any place, in any order; those after `now` are left
            out.
        now: Epoch seconds.
        windows: How far back to look.
    """
    past = [event for event in history if event.at <= now]
    parts = _sums(((one.part, one.at) for one in past), now, windows.part_s, windows)
    places = _sums(((one.place, one.at) for one in past), now, windows.place_s, windows)
    ranked = [one for seat in seats if (one := _ranked(seat, parts, places)) is not None]
    return sorted(ranked, key=_order)


def _sums(
    events: Iterable[tuple[str, float]], now: float, window_s: float, windows: RankWindows
) -> dict[str, _Sum]:
    sums: dict[str, _Sum] = {}
    for name, at in events:
        if name and now - at <= window_s:
            sums.setdefault(name, _Sum()).add(at, 0.5 ** ((now - at) / windows.half_life_s))
    return sums


def _ranked(seat: Seat, parts: Mapping[str, _Sum], places: Mapping[str, _Sum]) -> RankedSeat | None:
    for because, found in (
        (Because.PART, parts.get(seat.part)),
        (Because.PLACE, places.get(seat.place)),
    ):
        if found is not None:
            return RankedSeat(seat, because, found.weight, found.events, found.last_at)
    return None


def _order(one: RankedSeat) -> tuple[int, float, float, str, str]:
    return -one.because, -one.weight, -one.last_event_at, one.seat.place, one.seat.part
