"""From readings to tables of the wire, with schemas that stay the same from batch to batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import repeat

from gpuwarden_wire.batches import Table, pack_table
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.number_tables import NumberPacker
from gpuwarden_wire.readings import NotSupported, Reading, Rows
from gpuwarden_wire.registry import METRIC_BY_NAME, METRICS
from gpuwarden_wire.schema import Column, Schema

_ORDER = {metric.name: number for number, metric in enumerate(METRICS)}
_ABSENT = NotSupported()
_NOT_SUPPORTED = frozenset({NotSupported})


class TableMaker:
    """Packs the rows of collectors. Not thread-safe.

    A schema holds every metric that its collector has ever given for that kind of entity, so that a
    reading that comes and goes does not make a new schema each time. What no entity ever had is
    left out: a column that is not there is not supported.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, EntityKind], set[str]] = {}
        self._schemas: dict[tuple[str, EntityKind], Schema] = {}
        self._layouts: dict[tuple[str, EntityKind], RowLayout] = {}
        self._numbers = NumberPacker()

    def tables(
        self,
        collector: str,
        rows: Mapping[EntityKind, Rows],
        observed_at: float,
        shared: Collection[tuple[EntityKind, str]] = (),
    ) -> list[tuple[Table, Schema]]:
        """Tables of one call: one for each kind of entity that has rows with readings.

        Args:
            collector: Its name.
            rows: Readings; what a row lacks of the schema is not supported.
            observed_at: Epoch seconds.
            shared: Entities of which other sources tell what these rows lack: nothing is said of
                it here, so that rows with the same readings get a table of their own.
        """
        made = []
        for kind, entities in rows.items():
            alone = entities
            if shared:
                alone = {key: row for key, row in entities.items() if (kind, key) not in shared}
            schema = self._schema(collector, kind, alone.values())
            if schema is not None and alone:
                made.append(self._packed(schema, observed_at, alone))
            if not shared:
                continue
            beside = {key: row for key, row in entities.items() if (kind, key) in shared}
            made += [self._packed(one, observed_at, part) for one, part in _exactly(kind, beside)]
        return made

    def _schema(
        self, collector: str, kind: EntityKind, rows: Iterable[Mapping[str, Reading]]
    ) -> Schema | None:
        key = (collector, kind)
        known = self._names.setdefault(key, set())
        fresh: set[str] = set()
        for row in rows:
            if type(row) is NumberRow:
                if row.layout is self._layouts.get(key):
                    continue
                self._layouts[key] = row.layout
            others = row.keys() - known
            if not _NOT_SUPPORTED.issuperset(map(type, map(row.__getitem__, others))):
                fresh.update(name for name in others if not isinstance(row[name], NotSupported))
        if fresh:
            known |= fresh
            self._schemas[key] = schema_of(kind, known)
        return self._schemas.get(key)

    def _packed(
        self, schema: Schema, observed_at: float, entities: Mapping[str, Mapping[str, Reading]]
    ) -> tuple[Table, Schema]:
        table = self._numbers.pack(schema, observed_at, entities)
        if table is None:
            ordered = {key: _ordered(row, schema) for key, row in entities.items()}
            table = pack_table(schema, observed_at, ordered)
        return table, schema


def _exactly(kind: EntityKind, entities: Rows) -> Iterator[tuple[Schema, Rows]]:
    """Rows by what is in them, each with the schema of just that; empty ones left out."""
    parts: dict[frozenset[str], dict[str, Mapping[str, Reading]]] = {}
    for key, row in entities.items():
        if row:
            parts.setdefault(frozenset(row), {})[key] = row
    for names, part in parts.items():
        yield schema_of(kind, names), part


def flatten(rows: Mapping[EntityKind, Rows]) -> Iterator[tuple[EntityKind, str, str, Reading]]:
    """(kind, entity, metric, reading) of all rows."""
    for kind, entities in rows.items():
        for entity, row in entities.items():
            for metric, reading in row.items():
                yield kind, entity, metric, reading


def schema_of(kind: EntityKind, names: Iterable[str]) -> Schema:
    """Columns in the registry's order, f32 before counters; metrics of our own invention last."""
    return _schema_of(kind, frozenset(names))


@lru_cache(maxsize=1024)  # a server makes the same one for each of many nodes
def _schema_of(kind: EntityKind, names: frozenset[str]) -> Schema:
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
    return list(map(row.get, schema.names, repeat(_ABSENT)))
