from __future__ import annotations

import pytest

from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.ingest.sessions import NodeSession
from gpuwarden_server.ingest.telemetry import MAX_ENTITIES_A_NODE, check_entities
from gpuwarden_wire.batches import WIRE_VERSION, Batch, Stream, Table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import Schema

SCHEMAS = {"disks": Schema(EntityKind.DISK, ()), "ports": Schema(EntityKind.NIC, ())}


def batch(*tables: tuple[str, tuple[str, ...]]) -> Batch:
    return Batch(
        version=WIRE_VERSION,
        node_id="n1",
        spool_id="s",
        stream=Stream.TELEMETRY,
        seq=1,
        boot_id="b",
        agent_version="1",
        sent_at=0.0,
        tables=tuple(
            Table(schema=schema, observed_at=0.0, entities=entities, f32=b"", f64=b"")
            for schema, entities in tables
        ),
    )


def names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"e{number}" for number in range(first, first + count))


def test_entities_count_once_however_often_and_in_whatever_tables_they_are_named() -> None:
    session = NodeSession()
    most = names(0, MAX_ENTITIES_A_NODE)
    for tables in ((("disks", most),), (("disks", most),), (("disks", most[::-1]),)):
        check_entities(batch(*tables), SCHEMAS, session)
    check_entities(batch(("disks", most[:7]), ("disks", most[3:9])), SCHEMAS, session)
    assert sum(len(entities) for _, entities in session.entities) <= MAX_ENTITIES_A_NODE


def test_a_node_that_names_more_than_it_can_have_is_refused() -> None:
    session = NodeSession()
    check_entities(batch(("disks", names(0, MAX_ENTITIES_A_NODE - 1))), SCHEMAS, session)
    before = session.entities
    for wrong in (("disks", names(9_000, 2)), ("ports", names(0, 2))):
        with pytest.raises(ProblemError) as refused:
            check_entities(batch(wrong), SCHEMAS, session)
        assert refused.value.code == "too_many_entities"
        assert session.entities == before
    check_entities(batch(("ports", ("e0",))), SCHEMAS, session)
