"""Rows of features in state.db."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, select

from gpuwarden_server.learning.samples.domain import FeatureRow, Why
from gpuwarden_server.store.tables_learning import feature_rows
from gpuwarden_wire.metrics import EntityKind


def add_rows(connection: Connection, rows: Sequence[FeatureRow]) -> None:
    """Append rows."""
    values = [
        {
            "at": row.at,
            "entity_kind": row.kind.value,
            "entity": row.entity,
            "node_id": row.node_id,
            "why": row.why.value,
            "schema_hash": row.schema_hash,
            "model_version": row.model_version,
            "body": row.body,
            "share": row.share,
        }
        for row in rows
    ]
    if values:
        connection.execute(insert(feature_rows), values)


def delete_above(connection: Connection, most: int, before: float) -> int:
    """Forget what is older than `before` (epoch seconds), and all but the newest `most` rows."""
    c = feature_rows.c
    newest = connection.execute(select(func.max(c.row))).scalar() or 0
    gone = connection.execute(
        delete(feature_rows).where((c.row <= newest - most) | (c.at < before))
    )
    return gone.rowcount


def read_rows(
    connection: Connection, kind: EntityKind, schema_hash: str | None, after: int, limit: int
) -> list[tuple[int, FeatureRow]]:
    """Rows of a kind above a row, oldest first, each with its number.

    Args:
        connection: Reading connection.
        kind: Of the entities.
        schema_hash: Only of these columns, None for any.
        after: Row.
        limit: At most so many.
    """
    c = feature_rows.c
    statement = select(feature_rows).where(c.row > after, c.entity_kind == kind.value)
    if schema_hash is not None:
        statement = statement.where(c.schema_hash == schema_hash)
    return [
        (
            row.row,
            FeatureRow(
                row.at,
                EntityKind(row.entity_kind),
                row.entity,
                row.node_id,
                Why(row.why),
                row.schema_hash,
                row.model_version,
                bytes(row.body),
                row.share,
            ),
        )
        for row in connection.execute(statement.order_by(c.row).limit(limit))
    ]
