"""The lemon list: parts and places by their own severe past, with how often such a past returned.

Separate from the verdict: it looks at months, acts on nothing and feeds no score. It is for people
who decide which board goes back to its maker and where a spare goes.

A part is listed from a severe event on. A place, here a node, is listed where GPUs of at least two
parts failed in it: what befell one part is the part's record, and goes with it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwarden_verdict.entities import EntityRef
from gpuwarden_verdict.ledger import SEVERE_MARKS, LedgerReading, Mark
from gpuwarden_verdict.slow_rank import (
    DEFAULT_WINDOWS,
    Because,
    RankedSeat,
    RankWindows,
    Seat,
    SevereEvent,
    rank_seats,
)
from gpuwarden_wire.metrics import EntityKind

FOLLOWED_S = 90 * 86_400.0
"""An entry was right when another severe event came within so long."""

SAME_FAULT_S = 86_400.0
"""Severe events this near to the one before tell of the same fault."""

_MARKS = tuple(Mark)
_Z = 1.959963984540054  # of 95 %


@dataclass(frozen=True, slots=True)
class PastEvent:
    """A severe event on record.

    Attributes:
        at: Epoch seconds.
        fault: Where the fault lay.
    """

    at: float
    fault: str


@dataclass(frozen=True, slots=True)
class Lemon:
    """One entry.

    Attributes:
        entity: The part as it is now; of a place, the node.
        because: What put it there.
        weight: Its events, each halved every half-life.
        events: Those that count now, the newest first.
    """

    entity: EntityRef
    because: Because
    weight: float
    events: tuple[PastEvent, ...]


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """How often a former entry was right, on this very fleet.

    Attributes:
        entries: Former entries that are at least FOLLOWED_S old; 0: unknown yet.
        followed: Of these, with another severe event within FOLLOWED_S.
        young: Entries that are too young to tell.
    """

    entries: int
    followed: int
    young: int

    @property
    def precision(self) -> float | None:
        """Share that was right; None while unknown."""
        return self.followed / self.entries if self.entries else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of `precision` after Wilson; None while unknown."""
        if not self.entries:
            return None
        share, n = self.followed / self.entries, self.entries
        middle = share + _Z**2 / (2 * n)
        half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n * n))
        whole = 1 + _Z**2 / n
        return max(0.0, (middle - half) / whole), min(1.0, (middle + half) / whole)


@dataclass(frozen=True, slots=True)
class LemonList:
    """The list and its record.

    Attributes:
        lemons: Parts, then places; those to be watched most first.
        parts: How often listing a part was right.
        places: Likewise of places.
    """

    lemons: tuple[Lemon, ...]
    parts: TrackRecord
    places: TrackRecord


def lemon_list(
    ledger: LedgerReading,
    present: Iterable[EntityRef],
    now: float,
    windows: RankWindows = DEFAULT_WINDOWS,
) -> LemonList:
    """Rank what is in the fleet by its own severe past.

    Args:
        ledger: What is on record.
        present: GPUs, nodes and ports that are in the fleet now; others are not listed, yet count
            in the track record.
        now: Epoch seconds.
        windows: How far back to look.
    """
    refs = {(ref.kind, ref.key): ref for ref in present}
    record = _Record(ledger, refs)
    seats = {Seat(part, ""): ref for part, ref in record.refs.items()}
    seats |= {Seat("", part): ref for part, ref in record.refs.items() if part in record.places}
    history = [SevereEvent(p, "", one.at) for p, own in record.parts.items() for one in own]
    shared = {
        place: tuple(one for one, _ in own)
        for place, own in record.places.items()
        if _is_shared([part for one, part in own if 0 <= now - one.at <= windows.place_s])
    }
    history += [SevereEvent("", place, one.at) for place, own in shared.items() for one in own]
    ranked = rank_seats(list(seats), history, now, windows)
    return LemonList(
        lemons=tuple(_lemon(one, seats[one.seat], record, shared, now, windows) for one in ranked),
        parts=_track_record(
            ([one.at for one in own] for own in record.parts.values()), now, windows.part_s
        ),
        places=_track_record(
            (_shared_times(own, windows.place_s) for own in record.places.values()),
            now,
            windows.place_s,
        ),
    )


class _Record:
    """The severe events of a ledger, by part and by place; parts are named by their numbers.

    Attributes:
        parts: Severe events of each part.
        places: Of each node: what befell GPUs in it, and which part that was.
        refs: Who is a part now, of those that are in the fleet.
    """

    def __init__(
        self, ledger: LedgerReading, present: Mapping[tuple[EntityKind, str], EntityRef]
    ) -> None:
        self.parts: dict[str, list[PastEvent]] = defaultdict(list)
        self.places: dict[str, list[tuple[PastEvent, str]]] = defaultdict(list)
        self.refs: dict[str, EntityRef] = {}
        for kind, keys in ledger.keys.items():
            for key, part in zip(keys, ledger.parts[kind].tolist(), strict=True):
                if (kind, key) in present:
                    self.refs[str(part)] = present[kind, key]
        shared: list[tuple[str, float]] = []
        for part, code, at in zip(
            ledger.part.tolist(), ledger.mark.tolist(), ledger.at.tolist(), strict=True
        ):
            mark = _MARKS[code]
            if mark in SEVERE_MARKS:
                self.parts[str(part)].append(PastEvent(at, mark.value))
            elif mark is Mark.GPU:
                shared.append((str(part), at))
        self._lay_places(ledger, shared)

    def _lay_places(self, ledger: LedgerReading, shared: Sequence[tuple[str, float]]) -> None:
        """Find whose event each GPU event of a node was: the one of that moment."""
        gpus = {str(p) for p in ledger.parts.get(EntityKind.GPU, ())}
        then: dict[float, list[tuple[str, PastEvent]]] = defaultdict(list)
        for part in gpus:
            for one in self.parts.get(part, ()):
                then[one.at].append((part, one))
        for place, at in shared:
            node = self.refs.get(place)
            here = [
                (part, one)
                for part, one in then[at]
                if node is not None and part in self.refs and self.refs[part].node_id == node.key
            ]
            for part, one in here or then[at][:1]:
                self.places[place].append((one, part))


def _is_shared(parts: Sequence[str]) -> bool:
    return len(set(parts)) > 1


def _shared_times(own: Sequence[tuple[PastEvent, str]], window_s: float) -> list[float]:
    """When GPUs failed while the place was listed: from the second part's event on."""
    return [
        one.at
        for one, _ in own
        if _is_shared([part for other, part in own if 0 <= one.at - other.at <= window_s])
    ]


def _lemon(
    ranked: RankedSeat,
    ref: EntityRef,
    record: _Record,
    shared: Mapping[str, Sequence[PastEvent]],
    now: float,
    windows: RankWindows,
) -> Lemon:
    is_part = ranked.because is Because.PART
    own = record.parts[ranked.seat.part] if is_part else shared[ranked.seat.place]
    window_s = windows.part_s if is_part else windows.place_s
    counted = [one for one in own if 0 <= now - one.at <= window_s]
    newest_first = tuple(sorted(counted, key=lambda one: (-one.at, one.fault)))
    return Lemon(ref, ranked.because, ranked.weight, newest_first)


def _track_record(histories: Iterable[Sequence[float]], now: float, window_s: float) -> TrackRecord:
    """Go through each past as it was lived: when was it listed, and did that come true?"""
    entries = followed = young = 0
    for times in histories:
        faults = _faults(times)
        for number, at in enumerate(faults):
            if number and at - faults[number - 1] <= window_s:
                continue  # it was in the list already
            if now - at < FOLLOWED_S:
                young += 1
                continue
            entries += 1
            after = faults[number + 1] if number + 1 < len(faults) else math.inf
            followed += after - at <= FOLLOWED_S
    return TrackRecord(entries, followed, young)


def _faults(times: Sequence[float]) -> list[float]:
    """When each fault began: events within SAME_FAULT_S of the one before belong to it."""
    begun: list[float] = []
    last = -math.inf
    for at in sorted(times):
        if at - last > SAME_FAULT_S:
            begun.append(at)
        last = at
    return begun
