"""Times of readings: refused where they are none, and what their usual distance is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuwarden_models.recording_series import Block, Floats
from gpuwarden_models.recording_tables import LATEST_S, RecordingError

_FEWEST_STEPS = 1
_NEAR = 0.02


def check_times(at: Floats, place: Callable[[int], str]) -> None:
    """Refuse times that are none.

    Args:
        at: Epoch seconds.
        place: Names the file and the row of an index, for the message.

    Raises:
        RecordingError: One is missing, or not in seconds.
    """
    wrong = np.flatnonzero(~np.isfinite(at))
    if wrong.size:
        raise RecordingError(
            f"{place(int(wrong[0]))}: no timestamp; write epoch seconds there, or take the row out"
        )
    late = np.flatnonzero(np.abs(at) > LATEST_S)
    if late.size:
        raise RecordingError(
            f"{place(int(late[0]))}: timestamp {at[late[0]]:.0f} is no time in seconds;"
            " milliseconds must be divided by 1000"
        )


def usual_step(blocks: Sequence[Block]) -> float:
    """The usual time between two readings of one series, seconds; 30 where there is one only.

    What is within 2 % of whole seconds is these: scrapes come a little early and late.
    """
    steps: list[Floats] = []
    for block in blocks:
        order = np.lexsort((block.at, block.row))
        row, at = block.row[order], block.at[order]
        step = np.diff(at)
        steps.append(step[(np.diff(row) == 0) & (step > 0)])
    every = np.concatenate(steps) if steps else np.empty(0)
    if every.size < _FEWEST_STEPS:
        return 30.0
    usual = float(np.median(every))
    whole = float(round(usual))
    return whole if whole >= 1 and abs(usual - whole) <= _NEAR * whole else usual
