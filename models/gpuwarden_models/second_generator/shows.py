"""When something that happens first changes a reading or a line, by what was there without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf

import numpy as np

from gpuwarden_models.second_generator.levels import Flags, Floats, Readings

_SHARE = 0.01
"""A reading is another one where it moves by more than this share of itself."""


def watched(readings: Readings, first: int, end: int, happen: Callable[[], None]) -> float:
    """Let something happen, and say from when it shows.

    Args:
        readings: What it changes.
        first: Step from which it may.
        end: Step before which it must.
        happen: Lets it happen.

    Returns:
        Epoch seconds; infinite where it changes nothing that is written.
    """
    span, lines = slice(first, end), len(readings.lines)
    was = [array[:, span].astype(np.float64) for array in _arrays(readings)]
    happen()
    steps = (
        _first_step(old, array[:, span].astype(np.float64))
        for old, array in zip(was, _arrays(readings), strict=True)
    )
    read = (float(readings.at[first + step]) for step in steps if step is not None)
    told = (at for at, _, _ in readings.lines[lines:] if at < readings.at[-1])
    return min((*read, *told), default=inf)


def _arrays(readings: Readings) -> Iterator[Floats | Flags]:
    for columns in (
        readings.gpu, readings.gpu_gain, readings.node, readings.node_gain, readings.nic,
        readings.nic_gain, readings.mount_gain,
    ):  # fmt: skip
        yield from columns.values()
    yield readings.xid
    yield from (readings.gpu_lost, readings.dcgm_lost, readings.node_lost)


def _first_step(old: Floats, new: Floats) -> int | None:
    moved = (np.abs(new - old) > _SHARE * np.abs(old)).any(axis=0)
    return int(np.argmax(moved)) if moved.any() else None
