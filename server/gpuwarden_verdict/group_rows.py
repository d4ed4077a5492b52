"""Numbers of many groups in rows, sorted all at once, and the middle of each row.

Groups of about one size have rows of one width, side by side in one flat array; what is no number
is +inf and sorts to the end of its row. Distances from the median fall along one half of a sorted
row and rise along the other: their middle needs no second sort. In narrow rows the two halves are
merged, in wide ones it is searched for in all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I64 = npt.NDArray[np.int64]

NARROW = 8
"""Length of the shortest rows. They lie in columns: whole columns are compared at once, where a
sort of ten thousand rows of eight costs four times as much."""
WIDTHS = (NARROW, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Lengths of rows: few, since each costs a call, and close to each other, since a row is filled up
to its length."""
LARGEST = WIDTHS[-1]
"""Members of a group that are looked at."""
NOT_THERE = np.float32(np.inf)
"""Stands for what is no number."""

_NETWORK = (
    *((0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (1, 3), (4, 6), (5, 7), (1, 2), (5, 6)),
    *((0, 4), (3, 7), (1, 5), (2, 6), (1, 4), (3, 6), (2, 4), (3, 5), (3, 4)),
)
"""Comparisons that sort eight (Batcher's odd-even merge)."""
_HALF = np.float32(0.5)


@dataclass(frozen=True, slots=True)
class WideRows:
    """Rows of more than NARROW numbers, G of them, M places in all.

    Attributes:
        first: First place of each row, rising, int64, shape (G,).
        blocks: Rows of one width, the narrowest first: their places, and the width.
        steps: How a middle is searched for: by how many places, from which row on.
    """

    first: I64
    blocks: tuple[tuple[slice, int], ...]
    steps: tuple[tuple[int, int], ...]

    def middles(self, numbers: F32, count: I64) -> tuple[F32, F32]:
        """Median of each row, and the median distance of its numbers from it.

        Args:
            numbers: Row after row, shape (M,); they are sorted in place.
            count: Numbers in each row, shape (G,). Of a row without any, the middles are those of
                another: they are not to be used.
        """
        half, shift = count >> 1, (count + 1) >> 1
        median = self._sorted_medians(numbers, half, shift)
        return median, self._distances(numbers, half, shift, median)

    def medians(self, numbers: F32, count: I64) -> F32:
        """Median of each row alone; see `middles`."""
        return self._sorted_medians(numbers, count >> 1, (count + 1) >> 1)

    def _sorted_medians(self, numbers: F32, half: I64, shift: I64) -> F32:
        for places, width in self.blocks:
            numbers[places].reshape(-1, width).sort(axis=1)
        upper = numbers.take(self.first + half, mode="clip")
        median: F32 = numbers.take(self.first + (shift - 1), mode="clip")
        median += upper
        median *= _HALF
        return median

    def _distances(self, numbers: F32, half: I64, shift: I64, median: F32) -> F32:
        """Median distances.

        Distances of the lower half fall, those of the upper half, `shift` places on, rise: the two
        in the middle are those around the place where the one comes to exceed the other.
        """
        low = self._crossing(numbers, half, shift, median)
        high = low + shift
        inner = numbers.take(high - 1, mode="clip") - median
        np.maximum(inner, median - numbers.take(low, mode="clip"), out=inner)  # one, at an end
        below = median - numbers.take(low - 1, mode="clip")
        above = numbers.take(high, mode="clip") - median
        np.copyto(below, NOT_THERE, where=low == self.first)
        np.copyto(above, NOT_THERE, where=low == self.first + half)
        outer = np.minimum(below, above, out=below)
        np.copyto(outer, inner, where=half != shift)  # an odd count has one middle
        inner += outer
        inner *= _HALF
        return inner

    def _crossing(self, numbers: F32, half: I64, shift: I64, median: F32) -> I64:
        """First place of each row that is no further below the median than its opposite is above.

        Its opposite lies `shift` places on; `half` places from the row's first where there is none.
        """
        found, end = self.first.copy(), self.first + half
        last = end - 1
        for step, begin in self.steps:
            own, middle = found[begin:], median[begin:]
            tried = own + (step - 1)
            np.minimum(tried, last[begin:], out=tried)
            below = numbers.take(tried, mode="clip")
            np.subtract(middle, below, out=below)
            tried += shift[begin:]
            above = numbers.take(tried, mode="clip")
            above -= middle
            own += np.multiply(above < below, step, dtype=np.int64)
        np.minimum(found, end, out=found)
        return found


def narrow_middles(columns: F32, count: I64) -> tuple[F32, F32]:
    """Median of each column, and the median distance of its numbers from it.

    Args:
        columns: Shape (NARROW, G); may be written over.
        count: Numbers in each column, shape (G,). Of a column without any nothing is to be used.
    """
    ordered = _sorted_columns(columns)
    median = _middles_of(ordered, count)
    ordered -= median
    np.abs(ordered, out=ordered)
    return median, _middles_of(_merged_columns(ordered), count)


def narrow_medians(columns: F32, count: I64) -> F32:
    """Median of each column alone; see `narrow_middles`."""
    return _middles_of(_sorted_columns(columns), count)


def _middles_of(ordered: F32, count: I64) -> F32:
    """What lies in the middle of each column that rises."""
    at, flat = np.arange(count.size), ordered.ravel()
    both: F32 = flat.take(((count - 1) >> 1) * count.size + at, mode="clip")
    both += flat.take((count >> 1) * count.size + at, mode="clip")
    both *= _HALF
    return both


def widths_of(sizes: I64) -> I64:
    """Width of the row of a group of each size."""
    known = np.array(WIDTHS)
    return known[np.minimum(np.searchsorted(known, sizes), known.size - 1)]


def wide_rows(widths: I64) -> WideRows:
    """Rows of widths that rise."""
    first = np.cumsum(widths) - widths
    return WideRows(first, tuple(_blocks(widths, first)), _steps(widths))


def members_of(order: I64, starts: I64, sizes: I64, widths: I64) -> I64:
    """Which entity is at each place of the rows of groups; N where a row has no more.

    Args:
        order: Entities, those of a group one after another, shape (N,).
        starts: Where each group begins in `order`, shape (G,).
        sizes: Entities of each group, shape (G,).
        widths: Of its row, rising; of more entities so many are taken evenly. NARROW rows are laid
            in columns.
    """
    parts = [np.empty(0, np.int64)]
    for width in sorted(set(widths.tolist())):  # np.unique takes a millisecond for this
        begin, end = np.searchsorted(widths, [width, width + 1]).tolist()
        size, inside = sizes[begin:end, None], np.arange(width)
        if size[size > width].size:
            inside = np.maximum(size, width) * inside // width
        members = order.take(starts[begin:end, None] + inside, mode="clip")
        np.putmask(members, inside >= size, order.size)
        parts.append((members.T if width == NARROW else members).ravel())
    return np.concatenate(parts)


def _blocks(widths: I64, first: I64) -> Iterator[tuple[slice, int]]:
    for width in sorted(set(widths.tolist())):
        begin, end = np.searchsorted(widths, [width, width + 1]).tolist()
        yield slice(int(first[begin]), int(first[begin]) + width * (end - begin)), width


def _steps(widths: I64) -> tuple[tuple[int, int], ...]:
    """Steps that halve, each from the first row on that is wide enough for it."""
    steps, step = [], 1
    while widths.size and 2 * step <= widths[-1]:
        steps.append((step, int(np.searchsorted(widths, 2 * step))))
        step *= 2
    return tuple(reversed(steps))


def _sorted_columns(columns: F32) -> F32:
    """Each column sorted; `columns`, shape (NARROW, G), are written over."""
    lines, spare = list(columns), np.empty_like(columns[0])
    for low, high in _NETWORK:
        np.minimum(lines[low], lines[high], out=spare)
        np.maximum(lines[low], lines[high], out=lines[high])
        lines[low], spare = spare, lines[low]
    return np.array(lines)


def _merged_columns(columns: F32) -> F32:
    """Columns, shape (NARROW, G), that fall and then rise, sorted (bitonic merge)."""
    half = NARROW // 2
    while half:
        pairs = columns.reshape(NARROW // (2 * half), 2, half, columns.shape[1])
        merged = np.empty_like(pairs)
        np.minimum(pairs[:, 0], pairs[:, 1], out=merged[:, 0])
        np.maximum(pairs[:, 0], pairs[:, 1], out=merged[:, 1])
        columns, half = merged.reshape(columns.shape), half // 2
    return columns
