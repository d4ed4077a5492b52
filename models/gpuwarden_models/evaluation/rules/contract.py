"""What a rule set is: it looks at frames and says which rule fired for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.naming import Name, name_of
from gpuwarden_models.frames import Frame, FrameTable, NodeEvent
from gpuwarden_verdict.context import entity_named
from gpuwarden_wire.metrics import EntityKind


@dataclass(frozen=True, slots=True)
class Fired:
    """A rule fired.

    Attributes:
        name: For whom.
        at: Epoch seconds.
        rule: Which.
    """

    name: Name
    at: float
    rule: str


class RuleSet(Protocol):
    """Rules of one origin."""

    def look(self, frame: Frame) -> list[Fired]:
        """What fires at a frame; the same again is said again."""
        ...


def event_name(told: NodeEvent) -> Name:
    """Whom an event speaks of; its node where nothing narrower is known."""
    event = told.event
    return name_of(entity_named(event.entity_kind, event.entity, told.node_id))


def column(table: FrameTable, metric: str) -> NDArray[np.float64]:
    """A metric of all rows; NaN where it is missing or the schema lacks it."""
    try:
        values = table.column(metric)
    except KeyError:
        return np.full(len(table.keys), np.nan)
    return np.where(table.reported, values, np.nan)


def table_of(frame: Frame, kind: EntityKind) -> FrameTable | None:
    """The table of a kind."""
    return next((table for table in frame.tables if table.kind is kind), None)


def names_where(frame: Frame, table: FrameTable, rows: NDArray[np.bool_]) -> list[Name]:
    """Names of some rows."""
    kind = table.kind.value
    return [
        Name(kind, table.keys[row], frame.nodes[table.node_of[row]])
        for row in np.flatnonzero(rows).tolist()
    ]


class Lasting:
    """How long a condition has held, by row."""

    def __init__(self) -> None:
        self._since: NDArray[np.float64] | None = None

    def held(self, now: NDArray[np.bool_], at: float, for_s: float) -> NDArray[np.bool_]:
        """Rows where it has held for so long, shape (N,)."""
        if self._since is None or self._since.size != now.size:
            self._since = np.full(now.size, np.nan)
        self._since = np.where(now, np.where(np.isnan(self._since), at, self._since), np.nan)
        found: NDArray[np.bool_] = at - self._since >= for_s
        return found


class Growth:
    """How much a counter grew within a window, by row; a reset starts anew."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: list[tuple[float, NDArray[np.float64]]] = []

    def within(self, values: NDArray[np.float64], at: float) -> NDArray[np.float64]:
        """Growth of each row, NaN where it is not known, shape (N,)."""
        if self._seen and self._seen[-1][1].size != values.size:
            self._seen.clear()
        if self._seen:
            values = np.where(np.isnan(values), self._seen[-1][1], values)
        step = self._window_s / 24.0
        if not self._seen or at - self._seen[-1][0] >= step:
            self._seen.append((at, values))
        while len(self._seen) > 1 and at - self._seen[1][0] >= self._window_s:
            self._seen.pop(0)
        return np.maximum(values - self._seen[0][1], 0.0)
