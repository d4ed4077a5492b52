"""How far a row lies outside all that a model learnt from: where nothing fits, it says so."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]

FURTHEST = 10.0
"""A feature counts as at most so many of its spreads away: one broken reading is one feature."""


@dataclass(frozen=True, slots=True, eq=False)
class Novelty:
    """The cloud of healthy training rows, feature by feature.

    Attributes:
        center: Median of each feature, shape (F,).
        spread: From there to what few healthy rows exceed, in the feature's unit, > 0, shape (F,).
        sign: 1 where only larger values are strange, -1 smaller ones, 0 both, shape (F,).
        limit: Distance from which a row is unlike anything learnt from.
    """

    center: F64
    spread: F64
    sign: F64
    limit: float

    def parts(self, matrix: npt.NDArray[np.floating]) -> F64:
        """How many spreads each feature is away, 0..FURTHEST, shape (N, F); 0 where missing."""
        away = (matrix.astype(np.float64) - self.center) / self.spread
        away = np.where(self.sign == 0, np.abs(away), away * np.where(self.sign < 0, -1.0, 1.0))
        inside: F64 = np.clip(np.nan_to_num(away, nan=0.0), 0.0, FURTHEST)
        return inside

    def distances(self, matrix: npt.NDArray[np.floating]) -> F64:
        """Distance of rows (N, F) over the limit, shape (N,): from 1 on nothing learnt fits."""
        whole: F64 = np.sqrt((self.parts(matrix) ** 2).sum(axis=1)) / self.limit
        return whole
