"""The fleet as one sweep sees it: read without keeping batches away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from gpuwarden_verdict.windows.planes import I64
from gpuwarden_verdict.windows.view import KindView
from gpuwarden_wire.metrics import EntityKind


class FleetReading(Protocol):
    """What detectors read: the state itself, or a snapshot of it."""

    def view(self, kind: EntityKind) -> KindView:
        """All entities of a kind."""
        ...

    def rows_of(self, kind: EntityKind, keys: Sequence[str]) -> I64:
        """Rows of entities by key, int64, -1 where unknown."""
        ...


Columns = Mapping[EntityKind, Sequence[tuple[str, str]]]
"""What was read of each kind: plane and metric."""


class FleetSnapshot:
    """The entities of one moment; rows neither come nor move while it is kept.

    A column is copied when it is first asked for, from then on it is the same. `read_ahead`, under
    the lock, copies those that are known to be wanted, so that they are of one moment; another is
    of the moment when it is asked for.
    """

    def __init__(
        self,
        views: Mapping[EntityKind, KindView],
        index: Mapping[EntityKind, Mapping[str, int]],
        asked: Callable[[], None],
    ) -> None:
        self._views = views
        self._index = index
        self._asked = asked

    def view(self, kind: EntityKind) -> KindView:
        """All entities of a kind."""
        self._asked()
        return self._views[kind]

    def rows_of(self, kind: EntityKind, keys: Sequence[str]) -> I64:
        """Rows of entities by key, int64, -1 where unknown."""
        index, count = self._index[kind], len(self._views[kind])
        rows = np.array([index.get(key, -1) for key in keys], dtype=np.int64)
        rows[rows >= count] = -1  # came later
        return rows

    def read_ahead(self, kind: EntityKind, columns: Sequence[tuple[str, str]]) -> None:
        """Copy columns of a kind now; the lock of the state is held."""
        self._views[kind].read_ahead(columns)

    def columns_read(self) -> Columns:
        """What was asked for so far."""
        return {kind: view.columns_read() for kind, view in self._views.items()}
