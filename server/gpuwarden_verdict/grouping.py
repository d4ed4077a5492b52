"""Groups of peers and the robust middle of each: made once, used for many metrics.

A group's numbers are laid side by side in a row of a matrix, rows of about one length in one
matrix, and all rows of it are sorted at once: no Python for a single entity or a small group. What
is no number sorts to the end of its row, ties cost nothing, and the middle is read at the count of
numbers. Of a group of more than LARGEST entities, LARGEST are taken evenly: their median is within
a sixteenth of the group's spread of the true one, and 80,000 cost what a few hundred do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuwarden_verdict.memory import NO_CODE

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]
AnyArray = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]

MAD_TO_SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""

LARGEST = 512
"""Members of a group that are looked at."""

_NETWORK = (
    *((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6)),
    *((0, 4), (3, 7), (1, 5), (2, 6), (1, 4), (3, 6), (2, 4), (3, 5), (3, 4)),
)
"""Comparisons that sort eight (Batcher's odd-even merge): whole columns at once, where a sort of
ten thousand rows of eight costs four times as much."""
_NARROW = 8
_SMALL = 2**14
"""Members of a matrix whose sort costs less than a matrix more."""
_NONE = np.float32(np.inf)
_HALF = np.float32(0.5)


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
class _Rows:
    """Groups of about one size.

    Attributes:
        groups: Which groups, R of them.
        members: Rows of the entities, shape (R, S), narrow ones (S, R); N where one is shorter.
        narrow: Whether there are too few members for a sort of each row to pay.
        first: Flat place of each row's first member, shape (R,).
    """

    groups: slice
    members: I64
    narrow: bool

    first: I64

    def middles_at(self, count: I64) -> tuple[I64, I64]:
        """Flat places of the two middles of the first `count` numbers (R,) of each sorted row.

        Of a row without numbers they are of another row: its middle is not used.
        """
        lower, upper = (count - 1) >> 1, count >> 1
        if self.narrow:
            lower *= count.size
            upper *= count.size
        return self.first + lower, self.first + upper


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
        order = np.argsort(_compact(codes), kind="stable")
        ordered = codes[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if codes.size else order
        sizes = np.diff(np.r_[starts, codes.size])
        kept = (sizes >= fewest) & (ordered[starts] != NO_CODE)
        starts, sizes = starts[kept], sizes[kept]
        widths = _widths(sizes)
        by_width = np.argsort(widths, kind="stable")  # groups of one width lie side by side
        starts, sizes, widths = starts[by_width], sizes[by_width], widths[by_width]
        self.count = int(starts.size)
        self.group_of: I64 = np.full(codes.size, self.count, np.int64)
        numbers = np.repeat(np.arange(self.count), sizes)
        inside = np.arange(numbers.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.group_of[order[np.repeat(starts, sizes) + inside]] = numbers
        self._many = list(_layouts(order, starts, sizes, widths))

    def middle(self, values: F32) -> Middle:
        """Median and spread of each group.

        Args:
            values: float32, shape (N,), any unit; NaN and infinity are no members of any middle.
        """
        found = Middle(
            np.full(self.count + 1, np.nan, np.float32),
            np.full(self.count + 1, np.nan, np.float32),
            np.zeros(self.count + 1, np.int64),
        )
        padded = np.empty(values.size + 1, np.float32)
        np.fmin(values, _NONE, out=padded[:-1])
        padded[-1] = _NONE
        with np.errstate(invalid="ignore"):
            for rows in self._many:
                self._note(rows, padded.take(rows.members, mode="clip"), found)
        np.multiply(found.spread, np.float32(MAD_TO_SIGMA), out=found.spread)
        few = found.count < self.fewest
        found.median[few] = found.spread[few] = np.nan
        return found

    def per_entity(self, of_group: F32) -> F32:
        """A number of each entity's group, shape (N,); NaN for entities without one."""
        spread: F32 = of_group.take(self.group_of)
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

    def _note(self, rows: _Rows, block: F32, found: Middle) -> None:
        """Write the middles of some groups; `block` has a group a row, or a column if narrow."""
        axis = 0 if rows.narrow else 1
        count = np.add.reduce(block != _NONE, axis=axis, dtype=np.int64)
        lower, upper = rows.middles_at(count)
        block = _ordered(block, narrow=rows.narrow)
        flat = block.ravel()
        median = _HALF * (flat.take(lower) + flat.take(upper))
        block -= median if rows.narrow else median[:, None]
        np.abs(block, out=block)
        if not count.all():
            block[np.isnan(block)] = _NONE  # of groups without a number
        flat = _ordered(block, narrow=rows.narrow).ravel()
        found.median[rows.groups] = median
        found.spread[rows.groups] = _HALF * (flat.take(lower) + flat.take(upper))
        found.count[rows.groups] = count


def _compact(codes: I64) -> AnyArray:
    """The same order in sixteen bits where that is enough: such are sorted by counting."""
    if codes.size and codes.max() < 2**15 and codes.min() >= -(2**15):
        return codes.astype(np.int16)
    return codes


def _widths(sizes: I64) -> I64:
    """Length of the row of a group of each size: a power of two, of 8 to LARGEST.

    A matrix costs a few calls, however small it is: small ones join the next wider one.
    """
    doublings = np.ceil(np.log2(np.maximum(sizes, _NARROW))).astype(np.int64)
    widths = np.minimum(np.left_shift(1, doublings), LARGEST)
    width = 2 * _NARROW
    while width < LARGEST:
        alike = widths == width
        if np.count_nonzero(alike) * width <= _SMALL and (widths > width).any():
            widths[alike] = 2 * width
        width *= 2
    return widths


def _layouts(order: I64, starts: I64, sizes: I64, widths: I64) -> Iterator[_Rows]:
    """One matrix for the groups of each width, which lie side by side."""
    for width in sorted(set(widths.tolist())):  # np.unique takes a millisecond for this
        first, last = np.searchsorted(widths, [width, width + 1]).tolist()
        size, places = sizes[first:last, None], np.arange(width)
        stride = np.maximum(size, width)  # evenly over a group that is longer than its row
        inside = np.where(size > width, places * stride // width, places)
        members = order[np.minimum(starts[first:last, None] + inside, order.size - 1)]
        members[inside >= size] = order.size
        narrow = width == _NARROW
        at = np.arange(last - first) * (1 if narrow else width)
        yield _Rows(slice(first, last), members.T.copy() if narrow else members, narrow, at)


def _ordered(block: F32, *, narrow: bool) -> F32:
    """Each row sorted, of narrow ones each column; `block` may be written over."""
    if not narrow:
        block.sort(axis=1)
        return block
    lines, spare = list(block), np.empty_like(block[0])
    for low, high in _NETWORK:
        np.minimum(lines[low], lines[high], out=spare)
        np.maximum(lines[low], lines[high], out=lines[high])
        lines[low], spare = spare, lines[low]
    return np.array(lines)
