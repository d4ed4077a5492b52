"""Roll-ups: what happened to each series in a minute, a quarter of an hour, or any longer step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gpuwarden_verdict.segments.blocks import F32, F64, NARROW, U8, WIDE, AnyArray, Block


def roll_up_readings(block: Block, step_s: float, before: F64 | None = None) -> Block:
    """One roll-up of readings that all lie in one step.

    Args:
        block: Readings, in order of time.
        step_s: Length of the step, seconds; it begins at a multiple.
        before: The counters' last numbers before the step, shape (counters, rows); NaN or None
            where there were none: what they grew by is counted from their first number on.

    Returns:
        Roll-ups at one time, the beginning of the step.
    """
    narrow, wide = block.planes[NARROW], block.planes[WIDE]
    present = block.why == 0
    counter, increase = _grow(wide, before)
    count = present.sum(axis=0, dtype=np.float32)
    nothing = count[: block.narrow] == 0.0
    planes = {
        "min": np.fmin.reduce(narrow, axis=0),
        "max": np.fmax.reduce(narrow, axis=0),
        "sum": _sum(narrow, present[:, : block.narrow], nothing),
        "last": _last(narrow),
        "counter": counter,
        "increase": increase,
        "count": count,
    }
    return replace(
        block,
        times=np.array([np.floor(block.times[0] / step_s) * step_s]),
        planes={name: plane[None] for name, plane in planes.items()},
        why=_why(block.why, count)[None],
    )


def roll_up_further(block: Block, step_s: float) -> Block:
    """Roll-ups of roll-ups: one for each step that has any.

    Args:
        block: Roll-ups, in order of time.
        step_s: Length of the longer steps, seconds.
    """
    steps = np.floor(block.times / step_s) * step_s
    begins = np.flatnonzero(np.diff(steps, prepend=-np.inf))
    if begins.size == block.times.size:
        return replace(block, times=steps)
    ends = [*begins[1:].tolist(), block.times.size]
    parts = [
        _further({name: plane[begin:end] for name, plane in block.planes.items()}, block.narrow)
        for begin, end in zip(begins.tolist(), ends, strict=True)
    ]
    planes = {name: np.stack([part[name] for part in parts]) for name in block.planes}
    why = [
        _why(block.why[begin:end], planes["count"][place])
        for place, (begin, end) in enumerate(zip(begins.tolist(), ends, strict=True))
    ]
    return replace(block, times=steps[begins], planes=planes, why=np.stack(why))


def _further(planes: Mapping[str, AnyArray], narrow: int) -> dict[str, AnyArray]:
    count = planes["count"].sum(axis=0)
    nothing = count[:narrow] == 0.0
    unread = count[narrow:] == 0.0
    return {
        "min": np.fmin.reduce(planes["min"], axis=0),
        "max": np.fmax.reduce(planes["max"], axis=0),
        "sum": _sum(planes["sum"], ~np.isnan(planes["sum"]), nothing),
        "last": _last(planes["last"]),
        "counter": _last(planes["counter"]),
        "increase": np.where(unread, np.nan, np.nansum(planes["increase"], axis=0)),
        "count": count,
    }


def _grow(wide: F64, before: F64 | None) -> tuple[F64, F64]:
    """Last number of each counter, and by how much it grew.

    A counter that goes back was reset: what it shows has happened since.
    """
    latest = np.full(wide.shape[1:], np.nan) if before is None else before
    first, grown = latest, np.zeros(wide.shape[1:])
    was_reset = np.zeros(wide.shape[1:], np.bool_)
    for numbers in wide:
        step = numbers - latest
        back = step < 0.0
        was_reset |= back
        grown += np.nan_to_num(np.where(back, numbers, step))
        first = np.where(np.isnan(first), numbers, first)
        latest = np.where(np.isnan(numbers), latest, numbers)
    unread = np.isnan(wide).all(axis=0)
    # without a reset the difference is exact, and the same as between roll-ups' last numbers
    increase = np.where(was_reset, grown, latest - first)
    return np.where(unread, np.nan, latest), np.where(unread, np.nan, increase)


def _sum(narrow: F32, present: AnyArray, nothing: AnyArray) -> F32:
    total = np.where(present, narrow, np.float32(0.0)).sum(axis=0, dtype=np.float64)
    return np.where(nothing, np.nan, total).astype(np.float32)


def _last(planes: AnyArray) -> AnyArray:
    latest: AnyArray = planes[0]
    for numbers in planes[1:]:
        latest = np.where(np.isnan(numbers), latest, numbers)
    return latest


def _why(why: U8, count: F32) -> U8:
    """The latest reason where there was no number in all of the time."""
    latest = why[0]
    for codes in why[1:]:
        latest = np.where(codes != 0, codes, latest)
    return np.where(count == 0.0, latest, 0).astype(np.uint8)
