"""Who was watched, and the truth about them: incidents, and when an alarm is false."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarden_models.backtest.naming import Name
from gpuwarden_models.backtest.scores import SETTLING_S
from gpuwarden_models.recording_tables import LabelRow

DAY_S = 86400.0
FLEET_GPUS = 500
"""Rates are told a day and so many GPUs."""


@dataclass(frozen=True, slots=True)
class Incident:
    """One fault that needs action.

    Attributes:
        kind: Kind of its entity, in the words of labels.csv.
        entity: Its name.
        node: Its node, "" for what belongs to none.
        fault_class: Where it lies.
        mechanism: How it came about, "" where nobody says.
        precursor_start: Epoch seconds from which it may be flagged.
        start: Epoch seconds from which action is needed.
        end: Epoch seconds of its end, or of the recording.
        leaves_trace: Whether anything that is read or logged is changed by it before that, as the
            program that made it up says; true where nobody says.
    """

    kind: str
    entity: str
    node: str
    fault_class: str
    mechanism: str
    precursor_start: float
    start: float
    end: float
    leaves_trace: bool = True

    @property
    def announced(self) -> bool:
        """Whether it shows before action is needed."""
        return self.precursor_start < self.start


class Ground:
    """Names that may be flagged, and for each when that is right."""

    def __init__(
        self,
        names: Sequence[Name],
        labels: Sequence[LabelRow],
        behind: Mapping[tuple[str, str], frozenset[str]],
        start: float,
        end: float,
    ) -> None:
        """Work out who is at fault when.

        Args:
            names: Entities that may be flagged.
            labels: All labels.
            behind: Nodes behind a place or a job, by (kind, name).
            start: Epoch seconds of the first reading.
            end: Epoch seconds of the last.
        """
        self.names, self.start, self.end = tuple(names), start, end
        self._own: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._in_node: dict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(names):
            self._own[name.kind, name.entity].append(number)
            if name.node:
                self._in_node[name.node].append(number)
        self._node_of = {(one.kind, one.entity): one.node for one in names}
        inside = [row for row in labels if row.start <= end and row.end >= start]
        faults = [row for row in inside if row.action_needed]
        self.incidents = tuple(self._incident(row) for row in faults)
        self.concerned = tuple(self.concerned_by(one.kind, one.entity) for one in self.incidents)
        self.confounders = tuple(row for row in inside if not row.action_needed)
        self._right: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for row, concerned in zip(faults, self.concerned, strict=True):
            nodes = behind.get((row.entity_kind, row.entity), frozenset())
            reached = {number for node in nodes for number in self._in_node[node]}
            for number in concerned | reached:
                self._right[number].append((row.precursor_start, row.end + SETTLING_S))
        gpus = sum(name.kind == "gpu" for name in names)
        self.healthy_fleet_days = self._healthy(faults, gpus) / FLEET_GPUS
        """Days at risk of FLEET_GPUS healthy GPUs."""

    def _incident(self, row: LabelRow) -> Incident:
        return Incident(
            kind=row.entity_kind,
            entity=row.entity,
            node=self._node(row.entity_kind, row.entity),
            fault_class=row.fault_class.value,
            mechanism=row.mechanism,
            precursor_start=row.precursor_start,
            start=row.start,
            end=min(row.end, self.end + 1.0),
            leaves_trace=not row.never_shows
            and (row.shows_at is None or row.shows_at < min(row.end, self.end)),
        )

    def _node(self, kind: str, entity: str) -> str:
        if kind == "node":
            return entity
        if kind in ("nic", "disk"):
            return entity.partition("/")[0]
        return self._node_of.get((kind, entity), "")

    def concerned_by(self, kind: str, entity: str) -> frozenset[int]:
        """Whose alarm speaks of a fault: its own entity, its node; of a node's, all in it."""
        own = self._own.get((kind, entity), [])
        if kind == "node":
            return frozenset([*own, *self._in_node.get(entity, [])])
        node = self._node(kind, entity)
        return frozenset([*own, *self._own.get(("node", node), [])])

    def _healthy(self, faults: Iterable[LabelRow], gpus: int) -> float:
        labelled = sum(
            max(0.0, min(one.end + SETTLING_S, self.end) - max(one.precursor_start, self.start))
            for one in faults
            if one.entity_kind == "gpu"
        )
        return max(0.0, gpus * (self.end - self.start) - labelled) / DAY_S

    def is_right(self, number: int, at: float) -> bool:
        """Whether an alarm of an entity that begins then begins in a fault that it speaks of."""
        return any(first <= at <= last for first, last in self._right.get(number, ()))

    def right(self, entity: NDArray[np.int64], at: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which moments of entities lie in a fault that they speak of, shape (N,).

        Args:
            entity: Index into `names`, rising, shape (N,).
            at: Epoch seconds, shape (N,).
        """
        found = np.zeros(entity.size, np.bool_)
        for number, spans in self._right.items():
            first, last = np.searchsorted(entity, (number, number + 1)).tolist()
            times = at[first:last]
            for since, until in spans:
                found[first:last] |= (times >= since) & (times <= until)
        return found
