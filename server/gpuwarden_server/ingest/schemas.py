"""Schemas that agents have announced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_wire.batches import Batch
from gpuwarden_wire.metrics import DEVICE_KINDS, EntityKind
from gpuwarden_wire.registry import METRIC_BY_NAME
from gpuwarden_wire.schema import Schema

# Each metric name takes a set of float planes over all entities of its kind, so one agent must not
# make names without end.
MAX_UNKNOWN_METRICS = 256
MAX_SCHEMAS = 10_000


class SchemaBook:
    """All schemas by hash; on the event loop."""

    def __init__(self) -> None:
        self._schemas: dict[str, Schema] = {}
        self._unknown: dict[EntityKind, set[str]] = {kind: set() for kind in DEVICE_KINDS}

    def learn(self, schemas: Iterable[Schema]) -> None:
        """Take schemas over that are stored."""
        for schema in schemas:
            self._schemas[schema.hash] = schema
            self._unknown[schema.entity_kind] |= _unknown_names(schema)

    def of_batch(self, batch: Batch) -> Mapping[str, Schema]:
        """The schemas that a batch's tables name, those that it brings along included.

        Raises:
            ProblemError: 428 schema_required names the hashes that nobody has announced.
        """
        brought = {schema.hash: schema for schema in batch.schemas}
        wanted = {table.schema for table in batch.tables}
        # One object for all nodes, each of which brings its own: tables are told alike by it.
        found = {name: self._schemas.get(name) or brought.get(name) for name in wanted}
        missing = sorted(name for name, schema in found.items() if schema is None)
        if missing:
            raise ProblemError(
                428,
                "schema_required",
                f"{len(missing)} schemas are not known here",
                "Send the batch again with the definitions of `schemas`.",
                schemas=tuple(missing),
            )
        return {name: schema for name, schema in found.items() if schema is not None}

    def knows(self, schemas: Iterable[Schema]) -> bool:
        """Whether all of them are known."""
        return all(schema.hash in self._schemas for schema in schemas)

    def news_of(self, batch: Batch) -> list[Schema]:
        """Schemas of a batch that are not known yet.

        Raises:
            ProblemError: 400 where they would make too many metrics or schemas.
        """
        news = [schema for schema in batch.schemas if schema.hash not in self._schemas]
        if len(self._schemas) + len(news) > MAX_SCHEMAS:
            raise _too_many(f"{MAX_SCHEMAS} schemas are registered")
        for schema in news:
            known = self._unknown[schema.entity_kind]
            if len(known | _unknown_names(schema)) > MAX_UNKNOWN_METRICS:
                raise _too_many(f"{MAX_UNKNOWN_METRICS} {schema.entity_kind} metrics outside it")
        return news


def _unknown_names(schema: Schema) -> set[str]:
    return {column.name for column in schema.columns if column.name not in METRIC_BY_NAME}


def _too_many(detail: str) -> ProblemError:
    return ProblemError(
        400,
        "too_many_metrics",
        f"{detail}: no further ones are taken",
        "Send only metrics of the registry, docs/wire.md.",
    )
