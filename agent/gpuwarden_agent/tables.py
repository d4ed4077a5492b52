"""From readings to tables of the wire, with schemas that stay the same from batch to batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpuwarden_agent.collectors.contract import Rows
from gpuwarden_wire.batches import Table, pack_table
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.readings import NotSupported, Reading
from gpuwarden_wire.registry import METRIC_BY_NAME, METRICS
from gpuwarden_wire.schema import Column, Schema

_ORDER = {metric.name: number for number, metric in enumerate(METRICS)}
_ABSENT = NotSupported()


class TableMaker:
    """Packs the rows of collectors. Not thread-safe.

    A schema holds every metric that its collector has ever given for that kind of entity, so that a
    reading that comes and goes does not make a new schema each time. What no entity ever had is
    left out: a column that is not there is not supported.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, EntityKind], set[str]] = {}
        self._schemas: dict[tuple[str, EntityKind], Schema] = {}

    def tables(
        self, collector: str, rows: Mapping[EntityKind, Rows], observed_at: float
    ) -> list[tuple[Table, Schema]]:
        """One table for each kind of entity that has rows with readings."""
        made = []
        for kind, entities in rows.items():
            schema = self._schema(collector, kind, entities.values())
            if schema is None:
                continue
            packed = {key: _ordered(row, schema) for key, row in entities.items()}
            made.append((pack_table(schema, observed_at, packed), schema))
        return made

    def _schema(
        self, collector: str, kind: EntityKind, rows: Iterable[Mapping[str, Reading]]
    ) -> Schema | None:
        key = (collector, kind)
        known = self._names.setdefault(key, set())
        fresh = {
            name
            for row in rows
            for name, one in row.items()
            if name not in known and not isinstance(one, NotSupported)
        }
        if fresh:
            known |= fresh
            self._schemas[key] = schema_of(kind, known)
        return self._schemas.get(key)


def flatten(rows: Mapping[EntityKind, Rows]) -> Iterator[tuple[EntityKind, str, str, Reading]]:
    """(kind, entity, metric, reading) of all rows."""
    for kind, entities in rows.items():
        for entity, row in entities.items():
            for metric, reading in row.items():
                yield kind, entity, metric, reading


def schema_of(kind: EntityKind, names: Iterable[str]) -> Schema:
    """Columns in the registry's order, f32 before counters; metrics of our own invention last."""
    ordered = sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))
    columns = sorted(map(_column, ordered), key=lambda column: column.storage is Storage.COUNTER)
    return Schema(kind, tuple(columns))


def _column(name: str) -> Column:
    metric = METRIC_BY_NAME.get(name)
    if metric is not None:
        return Column(metric.name, metric.storage, metric.kind, metric.unit)
    if name.endswith("_total"):
        return Column(name, Storage.COUNTER, MetricKind.COUNTER, "")
    return Column(name, Storage.F32, MetricKind.GAUGE, "")


def _ordered(row: Mapping[str, Reading], schema: Schema) -> list[Reading]:
    return [row.get(column.name, _ABSENT) for column in schema.columns]
