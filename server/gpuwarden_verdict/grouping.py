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
_NONE = np.float32(np.inf)


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
        groups: Which groups, shape (R,).
        members: Rows of the entities, shape (R, S), narrow ones (S, R); N where one is shorter.
        narrow: Whether there are too few members for a sort of each row to pay.
    """

    groups: I64
    members: I64
    narrow: bool


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
        self.count = int(starts.size)
        self.group_of: I64 = np.full(codes.size, self.count, np.int64)
        numbers = np.repeat(np.arange(self.count), sizes)
        inside = np.arange(numbers.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.group_of[order[np.repeat(starts, sizes) + inside]] = numbers
        self._many = list(_layouts(order, starts, sizes, codes.size))

    def middle(self, values: F32) -> Middle:
        """Median and spread of each group.

        Args:
            values: float32, shape (N,), any unit; what is not finite is no member of any middle.
        """
        found = Middle(
            np.full(self.count + 1, np.nan, np.float32),
            np.full(self.count + 1, np.nan, np.float32),
            np.zeros(self.count + 1, np.int64),
        )
        padded = np.full(values.size + 1, _NONE, np.float32)
        np.copyto(padded[:-1], values, where=np.isfinite(values), casting="same_kind")
        with np.errstate(invalid="ignore"):
            for rows in self._many:
                self._note(rows, padded.take(rows.members, mode="clip"), found)
        return found

    def per_entity(self, of_group: F32) -> F32:
        """A number of each entity's group, shape (N,); NaN for entities without one."""
        spread: F32 = of_group[self.group_of]
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
        count = np.count_nonzero(block != _NONE, axis=axis)
        _order(block, narrow=rows.narrow)
        median = _middles(block, count, axis)
        block -= median if rows.narrow else median[:, None]
        np.abs(block, out=block)
        block[np.isnan(block)] = _NONE  # of groups without a number
        _order(block, narrow=rows.narrow)
        enough = count >= self.fewest
        groups = rows.groups[enough]
        found.median[groups] = median[enough]
        found.spread[groups] = np.float32(MAD_TO_SIGMA) * _middles(block, count, axis)[enough]
        found.count[rows.groups] = count


def _compact(codes: I64) -> AnyArray:
    """The same order in sixteen bits where that is enough: such are sorted by counting."""
    if codes.size and codes.max() < 2**15 and codes.min() >= -(2**15):
        return codes.astype(np.int16)
    return codes


def _layouts(order: I64, starts: I64, sizes: I64, entities: int) -> Iterator[_Rows]:
    """One matrix for the groups of each length, rounded up to half steps of powers of two."""
    widths = np.minimum(_rounded_up(sizes), LARGEST)
    for width in sorted(set(widths.tolist())):  # np.unique takes a millisecond for this
        groups = np.flatnonzero(widths == width)
        size, places = sizes[groups][:, None], np.arange(width)
        stride = np.maximum(size, width)  # evenly over a group that is longer than its row
        inside = np.where(size > width, places * stride // width, places)
        members = order[np.minimum(starts[groups][:, None] + inside, entities - 1)]
        members[inside >= size] = entities
        narrow = width == _NARROW
        yield _Rows(groups, members.T.copy() if narrow else members, narrow)


def _rounded_up(sizes: I64) -> I64:
    """The next of 8, 12, 16, 24, ...: a row is at most half as long again as its group."""
    steps = np.array([[2**n, 3 * 2 ** (n - 1)] for n in range(3, 40)], np.int64).ravel()
    rounded: I64 = steps[np.searchsorted(steps, sizes)]
    return rounded


def _order(block: F32, *, narrow: bool) -> None:
    if not narrow:
        block.sort(axis=1)
        return
    for low, high in _NETWORK:
        larger = np.maximum(block[low], block[high])
        np.minimum(block[low], block[high], out=block[low])
        block[high] = larger


def _middles(ordered: F32, count: I64, axis: int) -> F32:
    """Median of the first `count` numbers along an axis; NaN where there are none."""
    last = ordered.shape[axis] - 1
    lower, upper = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, last)
    along = np.arange(count.size)
    if axis == 0:
        low, high = ordered[lower, along], ordered[upper, along]
    else:
        flat = ordered.ravel()
        low, high = flat.take(along * (last + 1) + lower), flat.take(along * (last + 1) + upper)
    middles: F32 = np.float32(0.5) * (low + high)
    return middles
