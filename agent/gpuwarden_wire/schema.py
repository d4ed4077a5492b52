"""Column schemas: sent once, then named by hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import msgspec

from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.registry import METRIC_BY_NAME


class Column(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One metric of a table.

    Attributes:
        name: Metric name; a name outside the registry is stored under its own description.
        storage: "f32" or "counter" (f64).
        kind: gauge, counter or state.
        unit: Base unit, "" for counts.
    """

    name: str
    storage: Storage
    kind: MetricKind
    unit: str


class Schema(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """Ordered columns of one kind of entity: all f32 columns first, then all counters."""

    entity_kind: EntityKind
    columns: tuple[Column, ...]

    @cached_property
    def hash(self) -> str:
        """First 16 hex digits of SHA-256 over the canonical JSON form; names the schema."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    @cached_property
    def f32_count(self) -> int:
        """Number of f32 columns; they precede the counters."""
        return sum(column.storage is Storage.F32 for column in self.columns)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)


def schema_for(entity_kind: EntityKind, names: Sequence[str]) -> Schema:
    """The schema of registry metrics `names`, f32 columns first, else in the given order.

    Raises:
        KeyError: A name is not in the registry.
    """
    metrics = [METRIC_BY_NAME[name] for name in names]
    columns = [Column(m.name, m.storage, m.kind, m.unit) for m in metrics]
    columns.sort(key=lambda column: column.storage is Storage.COUNTER)
    return Schema(entity_kind, tuple(columns))
