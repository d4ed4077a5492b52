"""Nodes, boots, GPUs and slots in state.db."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sqlalchemy import Connection, insert, select, update

from gpuwarden_server.store.tables_fleet import gpu_slots, gpus, node_boots, nodes
from gpuwarden_server.store.upsert import upsert
from gpuwarden_verdict.engine.fleet import GpuRecord, NodeRecord


def load_nodes(connection: Connection) -> list[NodeRecord]:
    """All nodes."""
    boots: dict[str, set[str]] = defaultdict(set)
    for node_id, boot_id in connection.execute(select(node_boots.c.node_id, node_boots.c.boot_id)):
        boots[node_id].add(boot_id)
    return [
        NodeRecord(
            node_id=row["node_id"],
            first_seen_at=row["first_seen_at"],
            boot_id=row["boot_id"],
            agent_version=row["agent_version"],
            interval_s=row["interval_s"],
            gpus_expected=row["gpus_expected"],
            nics=tuple(row["nics"]),
            disks=tuple(row["disks"]),
            labels=row["labels"],
            inventory_at=row["inventory_at"],
            boots=frozenset(boots[row["node_id"]]),
        )
        for row in connection.execute(select(nodes)).mappings()
    ]


def load_gpus(connection: Connection) -> list[GpuRecord]:
    """All GPUs ever seen."""
    return [
        GpuRecord(**{**row, "nics": tuple(row["nics"]), "jobs": tuple(map(tuple, row["jobs"]))})
        for row in connection.execute(select(gpus)).mappings()
    ]


def load_departures(connection: Connection) -> list[tuple[str, str]]:
    """GPU and former node of every GPU that sits in another one by now."""
    moved = gpu_slots.c.node_id != gpus.c.node_id
    query = (
        select(gpu_slots.c.gpu_uuid, gpu_slots.c.node_id)
        .join(gpus, gpus.c.gpu_uuid == gpu_slots.c.gpu_uuid)
        .where(moved)
        .distinct()
    )
    return [(row.gpu_uuid, row.node_id) for row in connection.execute(query)]


def nodes_of_gpu(connection: Connection, gpu_uuid: str) -> list[str]:
    """Nodes that a GPU was ever in, earliest first."""
    query = select(gpu_slots.c.node_id).where(gpu_slots.c.gpu_uuid == gpu_uuid)
    return list(connection.execute(query.order_by(gpu_slots.c.since)).scalars())


def save_node(connection: Connection, node: NodeRecord, at: float) -> None:
    """Write a node and its boots; `at` is when it was last seen, epoch seconds."""
    values = asdict(node)
    for name in ("boots", "gpus_expected_set", "gpus_elsewhere"):
        del values[name]
    values |= {"nics": list(node.nics), "disks": list(node.disks), "labels": dict(node.labels)}
    statement = upsert(connection, nodes).values(**values, last_seen_at=at)
    fresh = {name: statement.excluded[name] for name in (*values, "last_seen_at")}
    del fresh["node_id"], fresh["first_seen_at"]
    connection.execute(statement.on_conflict_do_update(index_elements=["node_id"], set_=fresh))
    for boot_id in node.boots:
        row = upsert(connection, node_boots).values(
            node_id=node.node_id, boot_id=boot_id, first_seen_at=at
        )
        connection.execute(row.on_conflict_do_nothing())


def save_gpus(connection: Connection, records: Iterable[GpuRecord], at: float) -> None:
    """Write GPUs, and close and open slots where one moved; `at` in epoch seconds."""
    held = list(records)
    rows = [{**asdict(one), "nics": list(one.nics), "jobs": list(one.jobs)} for one in held]
    if not rows:
        return
    statement = upsert(connection, gpus)
    fresh = {name: statement.excluded[name] for name in rows[0]}
    del fresh["gpu_uuid"], fresh["first_seen_at"]
    connection.execute(
        statement.on_conflict_do_update(index_elements=["gpu_uuid"], set_=fresh), rows
    )
    _move_slots(connection, [one for one in held if one.present], at)


def _move_slots(connection: Connection, present: Sequence[GpuRecord], at: float) -> None:
    names = [one.gpu_uuid for one in present]
    query = select(gpu_slots).where(gpu_slots.c.gpu_uuid.in_(names), gpu_slots.c.until.is_(None))
    current = {row.gpu_uuid: row for row in connection.execute(query)}
    moved = []
    for record in present:
        slot = current.get(record.gpu_uuid)
        if slot is None or (slot.node_id, slot.pci_bus_id) != (record.node_id, record.pci_bus_id):
            moved.append(record)
    left = [current[one.gpu_uuid].id for one in moved if one.gpu_uuid in current]
    if left:
        connection.execute(update(gpu_slots).where(gpu_slots.c.id.in_(left)).values(until=at))
    if moved:
        connection.execute(insert(gpu_slots), [_slot(one, at) for one in moved])


def _slot(record: GpuRecord, at: float) -> dict[str, object]:
    return {
        "gpu_uuid": record.gpu_uuid,
        "node_id": record.node_id,
        "pci_bus_id": record.pci_bus_id,
        "since": at,
    }
