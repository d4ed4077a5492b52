"""Titan's GPUs: stays and event episodes of 2013 to 2019, public data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.evaluation.exclusion.rows import (
    DAY_S,
    EventLog,
    Rows,
    Seating,
    make_rows,
    snapshot_times,
)
from gpuwarden_models.evaluation.exclusion.tables import read_table

FOLDER = "titan_gpu_life"
PLACEMENT = ("column", "row", "cage", "slot", "node")
AGE = ("part_age_days", "stay_age_days")
TUNE_SPAN = ("2015-01-01", "2017-03-31")
TEST_SPAN = ("2017-10-01", "2019-04-30")

_LOCATION = re.compile(r"c(\d+)-(\d+)c(\d+)s(\d+)n(\d+)")
_SALT = "gpuwarden exclusion benchmark: "


@dataclass(frozen=True, slots=True, eq=False)
class Titan:
    """The machine.

    Attributes:
        log: Episodes: reports of one GPU at one place within 24 h are one.
        part: GPU of each stay, shape (S,).
        place: Location of each stay, shape (S,).
        since: Epoch seconds, shape (S,).
        until: Epoch seconds, shape (S,).
        born: When each GPU was first seen, shape (parts,).
        position: Column, row, cage, slot and node of each place, shape (places, 5).
    """

    log: EventLog
    part: NDArray[np.int64]
    place: NDArray[np.int64]
    since: NDArray[np.float64]
    until: NDArray[np.float64]
    born: NDArray[np.float64]
    position: NDArray[np.float64]

    def tune_rows(self) -> Rows:
        """Two thirds of the cabinets, the earlier time."""
        return self._rows(TUNE_SPAN, ~self._is_test())

    def test_rows(self) -> Rows:
        """The other third, the later time."""
        return self._rows(TEST_SPAN, self._is_test())

    def all_rows(self) -> tuple[Rows, Rows]:
        """All cabinets, the earlier time and the later."""
        everywhere = np.ones(self.position.shape[0], np.bool_)
        return self._rows(TUNE_SPAN, everywhere), self._rows(TEST_SPAN, everywhere)

    def cabinets(self) -> tuple[int, int]:
        """Cabinets to tune on and to test on."""
        names = {_cabinet(row) for row in self.position.tolist()}
        tests = sum(map(_is_test_cabinet, names))
        return len(names) - tests, tests

    def _is_test(self) -> NDArray[np.bool_]:
        return np.array([_is_test_cabinet(_cabinet(row)) for row in self.position.tolist()])

    def _rows(self, span: tuple[str, str], places: NDArray[np.bool_]) -> Rows:
        first, last = (_time(f"{day} 00:00:00") for day in span)
        seatings = [self._seating(at, places) for at in snapshot_times(first, last)]
        return make_rows(self.log, seatings, (*AGE, *PLACEMENT))

    def _seating(self, at: float, places: NDArray[np.bool_]) -> Seating:
        own = (self.since <= at) & (self.until > at) & places[self.place]
        part, place = self.part[own], self.place[own]
        ages = np.column_stack([at - self.born[part], at - self.since[own]]) / DAY_S
        return Seating(at, part, place, np.column_stack([ages, self.position[place]]))


def read_titan(public: Path) -> Titan:
    """Read both files.

    Args:
        public: Folder that GPUWARDEN_PUBLIC_DATA names.

    Raises:
        PublicRecordsError: A file is missing or of another form; names it.
    """
    stays = read_table(
        public / FOLDER / "gpu_location_lifetimes.csv.gz", ("SN", "location", "insert", "remove")
    )
    episodes = read_table(public / FOLDER / "event_episodes.csv.gz", ("SN", "location", "first"))
    # A report inside a stay has no insert of its own; it is in the episodes.
    stays = [row for row in stays if row["insert"]]
    parts = _numbers([row["SN"] for row in (*stays, *episodes)])
    places = _numbers([row["location"] for row in (*stays, *episodes)])
    since = np.array([_time(row["insert"]) for row in stays])
    part = np.array([parts[row["SN"]] for row in stays])
    born = np.full(len(parts), np.inf)
    np.minimum.at(born, part, since)
    return Titan(
        log=EventLog(
            np.array([parts[row["SN"]] for row in episodes]),
            np.array([places[row["location"]] for row in episodes]),
            np.array([_time(row["first"]) for row in episodes]),
            tuple(parts),
            tuple(places),
        ),
        part=part,
        place=np.array([places[row["location"]] for row in stays]),
        since=since,
        until=np.array([_time(row["remove"]) for row in stays]),
        born=born,
        position=np.array([_position(name) for name in places]),
    )


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(sorted(set(names)))}


def _time(text: str) -> float:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def _position(name: str) -> list[float]:
    found = _LOCATION.fullmatch(name)
    return [float(group) for group in found.groups()] if found else [np.nan] * len(PLACEMENT)


def _cabinet(position: Sequence[float]) -> str:
    return f"c{position[0]:.0f}-{position[1]:.0f}"


def _is_test_cabinet(name: str) -> bool:
    """One cabinet of three, by a hash that has nothing to do with how the files were split."""
    digest = hashlib.sha256(f"{_SALT}{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % 3 == 0
