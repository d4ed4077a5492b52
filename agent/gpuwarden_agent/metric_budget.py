"""How many series /metrics shows: what is beyond is left out in a fixed order, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading
from gpuwarden_wire.registry import METRICS

_ORDER = {metric.name: number for number, metric in enumerate(METRICS)}
_UNLISTED = len(METRICS)

SERIES_AN_ENTITY: Mapping[EntityKind, int] = {
    EntityKind.NODE: 400,
    EntityKind.GPU: 300,  # of 400: the rest is for info, jobs and XIDs
    EntityKind.NIC: 150,
    EntityKind.DISK: 50,
    EntityKind.MOUNT: 10,
}
ENTITIES: Mapping[EntityKind, int] = {
    EntityKind.NODE: 1,
    EntityKind.GPU: 128,  # 16 GPUs of 7 MIG instances
    EntityKind.NIC: 64,
    EntityKind.DISK: 64,
    EntityKind.MOUNT: 64,
}
XIDS_A_GPU = 32
"""Series pairs of XIDs of one GPU; those seen last are shown."""

Row = Mapping[str, Reading]


@dataclass(slots=True)
class Budget:
    """Chooses what is shown in one scrape.

    Attributes:
        left_out: Series left out, by kind of entity.
    """

    left_out: Counter[EntityKind] = field(default_factory=Counter)

    def rows(self, kind: EntityKind, rows: Mapping[str, Row]) -> dict[str, Row]:
        """Rows of the entities that come first by name, with the metrics first in the registry."""
        allowed = sorted(rows)[: ENTITIES[kind]]
        for key in rows.keys() - set(allowed):
            self.left_out[kind] += len(rows[key])
        return {key: self._row(kind, rows[key]) for key in allowed}

    def _row(self, kind: EntityKind, row: Row) -> Row:
        most = SERIES_AN_ENTITY[kind]
        if len(row) <= most:
            return row
        self.left_out[kind] += len(row) - most
        return {name: row[name] for name in by_registry(row)[:most]}


def by_registry(names: Iterable[str]) -> list[str]:
    """Names in the registry's order; those it does not know come last, by name."""
    return sorted(names, key=lambda name: (_ORDER.get(name, _UNLISTED), name))
