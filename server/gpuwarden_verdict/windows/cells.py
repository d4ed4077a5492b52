"""Single cells folded one by one: first sights, gaps, missing readings, times that stood still.

This is what folding a cell means; `update` folds the regular ones as blocks and equally.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuwarden_verdict.windows.planes import (
    DAY_S,
    F32,
    F64,
    FAST_S,
    HOUR_S,
    NUMBER,
    SLOW_S,
    U8,
    AnyArray,
    Bool,
)
from gpuwarden_wire.metrics import Storage


@dataclass(frozen=True, slots=True)
class Cells:
    """K cells of one section before a reading; of float32 series `total` is the number.

    Attributes:
        storage: How the series travel.
        place: Place of each plane in `block`.
        block: Their planes, float32, shape (K, planes).
        total: Latest number, NaN where there never was one.
        behind: Seconds from the latest number to the latest reading, NaN where never.
        resets: Times a counter went back.
    """

    storage: Storage
    place: dict[str, int]
    block: F32
    total: AnyArray
    behind: F32
    resets: F32


def fold_cells(cells: Cells, values: AnyArray, codes: U8, step: F64) -> Cells:
    """The cells after a reading.

    Args:
        cells: Before it.
        values: What was read, shape (K,).
        codes: NUMBER, or why there is none.
        step: Seconds since the latest reading of the same cells, infinite before the first.
    """
    present = codes == NUMBER
    unseen = np.isnan(cells.behind)
    # from number to number, however many readings between them were none
    gap = np.where(unseen, 0.0, step + cells.behind)
    first = present & unseen
    values = values.astype(np.float64)
    delta = np.where(first, 0.0, values - cells.total)
    block = cells.block.copy()
    resets, level, used = cells.resets, values, present
    if cells.storage is Storage.COUNTER:
        back = present & (delta < 0.0)
        # a counter that goes back was reset: what it shows has happened since, as in increase()
        growth = np.where(back, values, delta)
        resets = resets + back.astype(np.float32)
        level, used = growth / gap, present & (gap > 0.0)
        for name, constant in (("increment_1h", HOUR_S), ("increment_24h", DAY_S)):
            kept = np.fmax(block[:, cells.place[name]], 0.0) * np.exp(gap / -constant)
            _assign(block, cells.place[name], present, kept + growth)
    else:
        _assign(block, cells.place["number"], present, values)
    _fold_means(block, cells.place, level, gap, used)
    covered = np.fmax(block[:, cells.place["coverage"]], 0.0) * np.exp(gap / -HOUR_S) + gap
    _assign(block, cells.place["coverage"], present, covered)
    held = np.where(first | (delta != 0.0), 0.0, block[:, cells.place["steady"]] + gap)
    _assign(block, cells.place["steady"], present, held)
    highest = np.fmax(block[:, cells.place["highest"]], values)
    _assign(block, cells.place["highest"], present, highest)
    behind = np.where(present, 0.0, cells.behind + step).astype(np.float32)
    total = np.where(present, values, cells.total)
    return Cells(cells.storage, cells.place, block, total, behind, resets)


def _fold_means(block: F32, place: dict[str, int], level: AnyArray, gap: F64, used: Bool) -> None:
    """Means over irregular steps: weight 1 - exp(-step / time constant); first level as it is."""
    fast, slow = block[:, place["fast"]].copy(), block[:, place["slow"]].copy()
    weight = -np.expm1(gap / -SLOW_S)
    young = np.isnan(slow)  # both means begin with the same reading
    off = np.where(young, 0.0, level - slow)
    spread = np.fmax(block[:, place["variance"]], 0.0) + weight * off * off
    _assign(block, place["variance"], used, (1.0 - weight) * spread)
    _assign(block, place["slow"], used, np.where(young, level, slow + weight * off))
    ahead = -np.expm1(gap / -FAST_S) * (level - fast)
    _assign(block, place["fast"], used, np.where(young, level, fast + ahead))


def _assign(block: F32, place: int, where: Bool, new: AnyArray) -> None:
    np.copyto(block[:, place], new, where=where, casting="same_kind")
