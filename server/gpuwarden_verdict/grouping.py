"""Groups of peers and the robust middle of each: made once, used for many metrics.

A group's numbers are laid side by side in a row, and all rows of about one length are sorted at
once (`group_rows`): no Python for a single entity or a small group. What is no number sorts to the
end of its row, ties cost nothing, and the middle is read at the count of numbers. Of a group of
more than LARGEST entities, LARGEST are taken evenly: their median is within a sixteenth of the
group's spread of the true one, and 80,000 cost what a few hundred do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.group_rows import (
    LARGEST,
    NARROW,
    NOT_THERE,
    members_of,
    narrow_medians,
    narrow_middles,
    wide_rows,
    widths_of,
)
from gpuwarden_verdict.memory import NO_CODE

__all__ = ["LARGEST", "MAD_TO_SIGMA", "Around", "Grouping", "Middle"]

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]

MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_NAN = np.float32(np.nan)
_SOME = 16


@dataclass(frozen=True, slots=True)
class Middle:
    """What is usual in each group; each shape (G + 1,), NaN where too few numbers are.

    The last place is of entities without a group, so that `of_group[grouping.group_of]` gives an
    entity its group's number.

    Attributes:
        median: Median, in the metric's unit.
        spread: Standard deviation by the median absolute deviation, in the metric's unit.
        count: How many numbers.
    """

    median: F32
    spread: F32
    count: I64


@dataclass(frozen=True, slots=True)
class Around:
    """Some entities, and all of their groups.

    Attributes:
        members: All entities of these groups, rising, shape (M,).
        grouping: Of the members.
        places: Of the entities themselves among the members.
    """

    members: I64
    grouping: Grouping
    places: I64

    def medians(self, values: F32) -> F32:
        """Median of the group of each of the entities; `values` are of all, shape (N,)."""
        medians = self.grouping.medians(values[self.members])
        return self.grouping.per_entity(medians)[self.places]


class Grouping:
    """Who is compared with whom.

    Attributes:
        count: Groups of at least `fewest` entities.
        group_of: Group of each entity, int64, shape (N,); `count` for entities without one.
        fewest: Fewest numbers whose middle says anything.
    """

    def __init__(self, codes: I64, fewest: int) -> None:
        """Lay the groups out.

        Args:
            codes: Group of each entity, any numbers, NO_CODE for none.
            fewest: Fewest numbers whose middle says anything.
        """
        self.fewest = fewest
        codes = _compact(codes)
        order = np.argsort(codes, kind="stable")
        ordered = codes[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if codes.size else order
        sizes = np.diff(np.r_[starts, codes.size])
        kept = np.flatnonzero((sizes >= fewest) & (ordered[starts] != NO_CODE))
        widths = widths_of(sizes[kept])
        by_width = np.argsort(widths, kind="stable")  # groups of one width lie side by side
        kept, widths = kept[by_width], widths[by_width]
        self.count = int(kept.size)
        number_of = np.full(starts.size, self.count, np.int64)
        number_of[kept] = np.arange(self.count)
        self.group_of: I64 = np.empty(codes.size, np.int64)
        self.group_of[order] = np.repeat(number_of, sizes)
        self._sizes = np.minimum(sizes[kept], widths)
        self._members = members_of(order, starts[kept], sizes[kept], widths)
        self._row_of = self._row_of_each(widths)
        self._narrow = int(np.count_nonzero(widths == NARROW))
        self._wide = wide_rows(widths[self._narrow :])

    def middle(self, values: F32) -> Middle:
        """Median and spread of each group.

        Args:
            values: float32, shape (N,), any unit; NaN and infinity are no members of any middle.
        """
        padded, count, alike = self._laid_out(values)
        if alike:
            one = np.where(count < self.fewest, _NAN, padded[0])
            return Middle(one, one - one, count)
        numbers = padded.take(self._members, mode="clip")
        narrow, places = self._narrow, self._narrow * NARROW
        with np.errstate(invalid="ignore"):
            few = narrow_middles(numbers[:places].reshape(NARROW, narrow), count[:narrow])
            many = self._wide.middles(numbers[places:], count[narrow:-1])
        median = np.concatenate((few[0], many[0], [_NAN]))
        spread = np.concatenate((few[1], many[1], [_NAN]))
        spread *= np.float32(MAD_TO_SIGMA)
        unknown = np.flatnonzero(count < self.fewest)
        median[unknown] = spread[unknown] = np.nan
        return Middle(median, spread, count)

    def medians(self, values: F32) -> F32:
        """Median of each group alone, as `middle` has it: it costs about half."""
        padded, count, alike = self._laid_out(values)
        if alike:
            return np.where(count < self.fewest, _NAN, padded[0])
        numbers = padded.take(self._members, mode="clip")
        narrow, places = self._narrow, self._narrow * NARROW
        with np.errstate(invalid="ignore"):
            few = narrow_medians(numbers[:places].reshape(NARROW, narrow), count[:narrow])
            many = self._wide.medians(numbers[places:], count[narrow:-1])
        median = np.concatenate((few, many, [_NAN]))
        median[count < self.fewest] = np.nan
        return median

    def _laid_out(self, values: F32) -> tuple[F32, I64, bool]:
        """The numbers and one NOT_THERE after them, how many each group has, if all are one."""
        padded = np.empty(values.size + 1, np.float32)
        padded[:-1] = values
        lost = np.flatnonzero(~np.isfinite(padded[:-1]))
        padded[lost] = padded[-1] = NOT_THERE
        lost_of = np.bincount(self._row_of.take(lost, mode="clip"), minlength=self.count + 1)
        count = np.zeros(self.count + 1, np.int64)
        np.subtract(self._sizes, lost_of[:-1], out=count[:-1])
        alike = lost.size == values.size or _is_one_number(padded[:-1], lost.size)
        return padded, count, alike

    def per_entity(self, of_group: F32) -> F32:
        """A number of each entity's group, shape (N,); NaN for entities without one."""
        spread: F32 = of_group.take(self.group_of, mode="clip")  # cheaper than the check
        return spread

    def share(self, marked: Bool, among: Bool) -> F32:
        """Share of marked entities in each entity's group, float32, shape (N,).

        Args:
            marked: Shape (N,).
            among: Which entities count, shape (N,).
        """
        size = self.count + 1
        all_of = np.bincount(self.group_of[among], minlength=size)
        some = np.bincount(self.group_of[marked & among], minlength=size)
        share = (some / np.maximum(all_of, 1)).astype(np.float32)
        return self.per_entity(share)

    def around(self, rows: I64) -> Around:
        """The groups of some entities alone, for what is asked of few."""
        marked = np.zeros(self.count + 1, np.bool_)
        marked[self.group_of[rows]] = True
        members = np.flatnonzero(marked.take(self.group_of, mode="clip"))
        codes = self.group_of[members]
        codes[codes == self.count] = NO_CODE
        return Around(members, Grouping(codes, self.fewest), np.searchsorted(members, rows))

    def _row_of_each(self, widths: I64) -> I64:
        """In which group's row an entity is, int64, shape (N,); `count` where it is in none."""
        longest = int(np.searchsorted(widths, LARGEST))
        if longest == self.count:
            return self.group_of
        row_of = np.where(self.group_of < longest, self.group_of, self.count)
        members = self._members[-LARGEST * (self.count - longest) :]
        members = members[members < row_of.size]
        row_of[members] = self.group_of[members]
        return row_of


def _is_one_number(padded: F32, lost: int) -> bool:
    """Whether all but the lost ones are one number, as most counters of errors are.

    It is told of the first one, and only where some more are equal to it: to ask costs little.
    """
    first = padded[0]
    some = np.count_nonzero(padded[:_SOME] == first) >= _SOME // 2
    return bool(some and np.count_nonzero(padded != first) == lost and first != NOT_THERE)


def _compact(codes: I64) -> AnyArray:
    """The same order in sixteen bits where that is enough: such are sorted by counting."""
    if codes.size and codes.max() < 2**15 and codes.min() >= -(2**15):
        return codes.astype(np.int16)
    return codes
