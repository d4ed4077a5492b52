"""Lanes: columns that are always read together share the time of their latest reading.

Most of a fleet sends a metric in one table only, together with the same others. Instead of a time
a series there is one a lane and entity; where another schema names but some of a lane's columns,
the lane is split, and both parts keep the time that they had together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SectionColumns:
    """The columns of one table in a section.

    Attributes:
        slots: int64, in the table's order.
        run: The same as a slice where they are one, None else.
        lanes: Their lanes, each once, int64.
        lane_of: Place in `lanes` of each column, None where there is one lane.
    """

    slots: I64
    run: slice | None
    lanes: I64
    lane_of: I64 | None


class LaneBook:
    """Which lane each column of a section belongs to; lanes only ever split."""

    def __init__(self) -> None:
        self.count = 0
        self._lane_of: dict[int, int] = {}

    def copy(self) -> LaneBook:
        """A book of its own."""
        other = LaneBook()
        other.count, other._lane_of = self.count, dict(self._lane_of)
        return other

    def cover(self, slots: Sequence[int]) -> dict[int, int]:
        """See to it that these columns are whole lanes.

        Returns:
            For each lane that was split off, the one that it was part of; new lanes that are not
            in it have never been read.
        """
        members: dict[int | None, list[int]] = defaultdict(list)
        for slot in slots:
            members[self._lane_of.get(slot)].append(slot)
        sizes: dict[int, int] = defaultdict(int)
        for lane in self._lane_of.values():
            sizes[lane] += 1
        parts: dict[int, int] = {}
        for former, part in members.items():
            if former is not None and len(part) == sizes[former]:
                continue
            if former is not None:
                parts[self.count] = former
            self._lane_of.update(dict.fromkeys(part, self.count))
            self.count += 1
        return parts

    def columns(self, slots: I64) -> SectionColumns:
        """The columns with their lanes."""
        lanes, lane_of = np.unique([self._lane_of[s] for s in slots.tolist()], return_inverse=True)
        run = slice(int(slots[0]), int(slots[-1]) + 1)
        is_run = bool((np.diff(slots) == 1).all())
        return SectionColumns(
            slots,
            run if is_run else None,
            lanes.astype(np.int64),
            lane_of if lanes.size > 1 else None,
        )

    def lane_of(self, slot: int) -> int:
        """The lane of one column."""
        return self._lane_of[slot]

    def members(self) -> dict[int, list[int]]:
        """Columns by lane."""
        found: dict[int, list[int]] = defaultdict(list)
        for slot, lane in self._lane_of.items():
            found[lane].append(slot)
        return dict(found)
