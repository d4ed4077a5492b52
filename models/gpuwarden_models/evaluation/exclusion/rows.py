"""Seats at snapshots: what was known of each then, and what came after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_verdict.slow_rank import Seat, SevereEvent

DAY_S = 86400.0
SNAPSHOT_DAYS = 60.0
HORIZON_DAYS = 90.0
NEVER_DAYS = 1e5
"""Stands for "no event yet" where a number of days is wanted."""

HISTORY_FEATURES = (
    "part_days_since", "part_events_180d", "part_events",
    "place_days_since", "place_events_30d", "place_events_180d", "place_events",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class EventLog:
    """Severe events, by number of part and place.

    Attributes:
        part: Part of each event, shape (E,).
        place: Place of each, shape (E,).
        at: Epoch seconds, shape (E,).
        part_names: Names of parts.
        place_names: Names of places.
    """

    part: NDArray[np.int64]
    place: NDArray[np.int64]
    at: NDArray[np.float64]
    part_names: tuple[str, ...]
    place_names: tuple[str, ...]

    def until(self, at: float) -> list[SevereEvent]:
        """Events that were known at a moment."""
        return [
            SevereEvent(self.part_names[part], self.place_names[place], when)
            for part, place, when in zip(
                self.part.tolist(), self.place.tolist(), self.at.tolist(), strict=True
            )
            if when <= at
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """One row a seat and snapshot.

    Attributes:
        at: Snapshots, epoch seconds, shape (S,).
        snapshot: Index into `at` of each row, rising, shape (N,).
        part: Part of each row, shape (N,).
        place: Place of each row, shape (N,).
        later: Events at the place within the horizon, int, shape (N,).
        columns: Names of features.
        matrix: Features, shape (N, F).
        log: All events.
    """

    at: NDArray[np.float64]
    snapshot: NDArray[np.int64]
    part: NDArray[np.int64]
    place: NDArray[np.int64]
    later: NDArray[np.int64]
    columns: tuple[str, ...]
    matrix: NDArray[np.float64]
    log: EventLog

    @property
    def hit(self) -> NDArray[np.bool_]:
        """Whether an event came at all."""
        found: NDArray[np.bool_] = self.later > 0
        return found

    def column(self, name: str) -> NDArray[np.float64]:
        """A feature by its name."""
        found: NDArray[np.float64] = self.matrix[:, self.columns.index(name)]
        return found

    def seats(self, snapshot: int) -> list[Seat]:
        """Seats of one snapshot, in the order of its rows."""
        own = self.snapshot == snapshot
        parts, places = self.log.part_names, self.log.place_names
        return [
            Seat(parts[part], places[place])
            for part, place in zip(self.part[own].tolist(), self.place[own].tolist(), strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class Seating:
    """Who sits where at one snapshot.

    Attributes:
        at: Epoch seconds.
        part: Shape (N,).
        place: Shape (N,).
        more: Further features, shape (N, M).
    """

    at: float
    part: NDArray[np.int64]
    place: NDArray[np.int64]
    more: NDArray[np.float64]


def make_rows(log: EventLog, seatings: Sequence[Seating], more: tuple[str, ...] = ()) -> Rows:
    """Rows of snapshots, with features of the past alone and events of the time after."""
    sizes = [one.part.size for one in seatings]
    return Rows(
        at=np.array([one.at for one in seatings]),
        snapshot=np.repeat(np.arange(len(seatings)), sizes),
        part=np.concatenate([np.empty(0, np.int64), *(one.part for one in seatings)]),
        place=np.concatenate([np.empty(0, np.int64), *(one.place for one in seatings)]),
        later=np.concatenate([np.empty(0, np.int64), *(_later(log, one) for one in seatings)]),
        columns=(*HISTORY_FEATURES, *more),
        matrix=np.concatenate(
            [
                np.empty((0, len(HISTORY_FEATURES) + len(more))),
                *(np.column_stack([*_history(log, one), one.more]) for one in seatings),
            ]
        ),
        log=log,
    )


def _later(log: EventLog, seating: Seating) -> NDArray[np.int64]:
    own = (log.at > seating.at) & (log.at <= seating.at + HORIZON_DAYS * DAY_S)
    counts = np.bincount(log.place[own], minlength=len(log.place_names))
    found: NDArray[np.int64] = counts[seating.place]
    return found


def _history(log: EventLog, seating: Seating) -> list[NDArray[np.float64]]:
    parts, places = len(log.part_names), len(log.place_names)
    age = (seating.at - log.at) / DAY_S
    past = age >= 0

    def since(number: NDArray[np.int64], size: int) -> NDArray[np.float64]:
        days = np.full(size, NEVER_DAYS)
        np.minimum.at(days, number[past], age[past])
        return days

    def events(number: NDArray[np.int64], size: int, days: float) -> NDArray[np.float64]:
        return np.bincount(number[past & (age <= days)], minlength=size).astype(np.float64)

    return [
        since(log.part, parts)[seating.part],
        events(log.part, parts, 180.0)[seating.part],
        events(log.part, parts, NEVER_DAYS)[seating.part],
        since(log.place, places)[seating.place],
        events(log.place, places, 30.0)[seating.place],
        events(log.place, places, 180.0)[seating.place],
        events(log.place, places, NEVER_DAYS)[seating.place],
    ]


def snapshot_times(first: float, last: float) -> list[float]:
    """Every SNAPSHOT_DAYS from the first until the last."""
    return np.arange(first, last + 1.0, SNAPSHOT_DAYS * DAY_S).tolist()
