"""Values of one kind of entity with its columns by name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpuwarden_wire.metrics import Storage
from gpuwarden_wire.schema import Schema


class Columns:
    """Readings of all entities of one kind.

    Attributes:
        values: float64, shape (columns, entities).
        counters: Metrics that only rise.
    """

    def __init__(self, schema: Schema, count: int) -> None:
        """All zero."""
        self.values: NDArray[np.float64] = np.zeros((len(schema.columns), count))
        self.counters: tuple[str, ...] = tuple(
            column.name for column in schema.columns if column.storage is Storage.COUNTER
        )
        self._column: dict[str, NDArray[np.float64]] = {
            column.name: self.values[i] for i, column in enumerate(schema.columns)
        }

    def __getitem__(self, metric: str) -> NDArray[np.float64]:
        """One metric of all entities, a view to read and write."""
        return self._column[metric]

    def __setitem__(self, metric: str, values: NDArray[np.float64]) -> None:
        """Overwrite one metric in place; makes `columns[metric] += x` work."""
        self._column[metric][:] = values
