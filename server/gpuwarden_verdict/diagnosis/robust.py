"""Statistics that a few odd entities or steps cannot bend. NaN is what was not read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.diagnosis.window import Flags, Floats

_FEW = 4
"""Up to so many members, each is compared with the others alone: it would be a part of its own
measure else."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps over which something holds, most of the time.

    Attributes:
        first: First step.
        last: Last step.
        share: Of the steps that were read between them, in how many it held.
    """

    first: int
    last: int
    share: float

    @property
    def length(self) -> int:
        """Steps."""
        return self.last - self.first + 1

    def overlap(self, other: Run) -> float:
        """Share of the shorter one that both have."""
        both = min(self.last, other.last) - max(self.first, other.first) + 1
        return max(0, both) / min(self.length, other.length)

    @property
    def steps(self) -> slice:
        """As an index."""
        return slice(self.first, self.last + 1)


def middle(values: Floats, axis: int) -> Floats:
    """Median of what was read; NaN where nothing was."""
    return quantile(values, 0.5, axis)


def quantile(values: Floats, q: float, axis: int) -> Floats:
    """Quantile of what was read; NaN where nothing was."""
    # numpy's own goes through Python once a column.
    ordered = np.sort(np.moveaxis(values, axis, 0), axis=0)  # NaN comes last
    if ordered.shape[0] == 0:
        return np.full(ordered.shape[1:], np.nan)
    place = q * (np.isfinite(ordered).sum(axis=0) - 1)
    low = np.clip(np.floor(place), 0, None).astype(np.int64)
    high = np.clip(np.ceil(place), 0, None).astype(np.int64)
    below, above = (np.take_along_axis(ordered, at[None], axis=0)[0] for at in (low, high))
    found: Floats = below + (above - below) * (place - low)
    found[place < 0] = np.nan
    return found


def one_quantile(values: Floats, q: float) -> float:
    """Quantile over everything that was read; NaN where nothing was."""
    read = values[np.isfinite(values)]
    return float(np.quantile(read, q)) if read.size else float("nan")


def mean(values: Floats) -> float:
    """Mean of what was read; NaN where nothing was."""
    read = values[np.isfinite(values)]
    return float(read.mean()) if read.size else float("nan")


def total(values: Floats) -> Floats:
    """Sum over entities, shape (steps,); NaN in steps of which nothing was read."""
    found: Floats = np.nansum(values, axis=0)
    found[~np.isfinite(values).any(axis=0)] = np.nan
    return found


def peers(values: Floats) -> Floats:
    """What the others show in the same step, shape (entities, steps); NaN for a single entity."""
    count = values.shape[0]
    if count < 2:
        return np.full(values.shape, np.nan)
    if count > _FEW:
        return np.broadcast_to(middle(values, 0), values.shape)
    return np.array([middle(np.delete(values, row, axis=0), 0) for row in range(count)])


def over(values: Floats, reference: Floats | float) -> Floats:
    """Ratio; NaN where the reference is 0 or not known."""
    base = np.broadcast_to(np.asarray(reference, dtype=np.float64), values.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = np.where(base > 0, values / base, np.nan)
    return ratio


def grade(value: float, low: float, high: float) -> float:
    """0 at `low` and less, 1 at `high` and more; 0 for NaN."""
    if value != value:
        return 0.0
    return float(min(1.0, max(0.0, (value - low) / (high - low))))


def longest_run(holds: Flags, read: Flags, least: int = 3) -> Run | None:
    """Where something holds: the stretch in which steps that hold most outnumber the others.

    Args:
        holds: Whether it does, shape (steps,).
        read: Whether the step tells, shape (steps,).
        least: Steps in which it must hold.

    Returns:
        None where it holds too rarely.
    """
    if int((holds & read).sum()) < least:
        return None
    gain = np.where(read, np.where(holds, 1.0, -1.5), 0.0)
    sums = np.concatenate(([0.0], np.cumsum(gain)))
    lowest = np.minimum.accumulate(sums)
    last = int(np.argmax(sums - lowest))
    if last == 0:
        return None
    first = int(np.flatnonzero(sums[:last] == lowest[last])[-1])
    held, seen = int((holds & read)[first:last].sum()), int(read[first:last].sum())
    return Run(first, last - 1, held / seen) if held >= least else None


def together(strengths: list[float]) -> float:
    """Several independent pieces of evidence as one, 0..1: each takes its share of the doubt."""
    return 1.0 - float(np.prod([1.0 - min(0.98, s) for s in strengths])) if strengths else 0.0
