"""The cheap first stage: who is ordinary in all that costs little to see never meets the trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class FirstStage:
    """Limits on some features; a row above any of them is a suspect.

    Attributes:
        columns: Which features, int64, shape (K,).
        limits: Highest ordinary value of each, in the feature's unit, shape (K,).
    """

    columns: I64
    limits: F64

    def suspects(self, matrix: npt.NDArray[np.floating]) -> Bool:
        """Rows of features (N, F) that the trees must see, shape (N,); all without any limit.

        A missing feature is no suspicion.
        """
        if self.columns.size == 0:
            return np.ones(matrix.shape[0], np.bool_)
        found = np.zeros(matrix.shape[0], np.bool_)
        for column, limit in self.by_column():
            found |= matrix[:, column] > limit
        return found

    def by_column(self) -> list[tuple[int, float]]:
        """Which features have a limit, and which."""
        return list(zip(self.columns.tolist(), self.limits.tolist(), strict=True))


EVERYONE = FirstStage(np.empty(0, np.int64), np.empty(0))
"""Lets all rows through."""
