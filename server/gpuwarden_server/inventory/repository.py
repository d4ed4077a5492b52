"""The inventory in state.db."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, delete, select

from gpuwarden_server.inventory.domain import Changes, Entry, Source
from gpuwarden_server.store.tables_inventory import inventory
from gpuwarden_server.store.upsert import upsert


def load_entries(connection: Connection) -> Mapping[Source, dict[str, Entry]]:
    """All entries by source and node."""
    found: dict[Source, dict[str, Entry]] = {source: {} for source in Source}
    for row in connection.execute(select(inventory)):
        found[Source(row.source)][row.node_id] = Entry(
            node_id=row.node_id,
            rack=row.rack,
            leaf=row.leaf,
            pool=row.pool,
            mounts=tuple(row.mounts),
            gpus_expected=row.gpus_expected,
            labels=row.labels,
        )
    return found


def save_changes(connection: Connection, source: Source, changes: Changes, at: float) -> None:
    """Write what changed of one source; `at` in epoch seconds."""
    for node_id, (_, after) in changes.changed.items():
        if after is None:
            connection.execute(
                delete(inventory).where(
                    inventory.c.source == source.value, inventory.c.node_id == node_id
                )
            )
            continue
        values = {**after.form(), "updated_at": at}
        del values["node_id"]
        connection.execute(
            upsert(connection, inventory)
            .values(source=source.value, node_id=node_id, **values)
            .on_conflict_do_update(index_elements=["source", "node_id"], set_=values)
        )
