"""What a starting judge reads of boots and agents' trouble, without looking at all events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, insert

from gpuwarden_server.judging.repository import read_standing_events
from gpuwarden_server.store.base import STATE
from gpuwarden_server.store.engines import Synchronous, writing_engine
from gpuwarden_server.store.tables_fleet import events
from gpuwarden_verdict.engine.events import EventFlag
from gpuwarden_wire.events import EventKind

BOOT, TROUBLE, FINE = (
    EventKind.NODE_BOOT,
    EventKind.COLLECTOR_TROUBLE,
    EventKind.COLLECTOR_RECOVERED,
)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    engine = writing_engine(tmp_path / "state.db", Synchronous.NORMAL)
    STATE.create_all(engine)
    with engine.begin() as opened:
        yield opened
    engine.dispose()


def rows(node: str, *kinds: EventKind, flags: str = "", names: str = "") -> list[dict[str, object]]:
    return [
        {
            "id": f"{node}:{names}:{number}",
            "node_id": node,
            "entity_kind": "node",
            "entity": node,
            "kind": kind.value,
            "observed_at": 1.0,
            "received_at": 1.0,
            "boot_id": "b",
            "spool_id": "s",
            "seq": 1,
            "flags": flags,
            "body": f'{{"id":"{names}{number}","kind":"{kind.value}","observed_at":1.0}}',
        }
        for number, kind in enumerate(kinds)
    ]


def found(connection: Connection) -> list[tuple[str, str]]:
    return [(node, event.id) for node, event, _ in read_standing_events(connection)]


def test_the_newest_boot_and_what_came_since_is_read_in_order(connection: Connection) -> None:
    connection.execute(
        insert(events),
        [
            *rows("a", BOOT, TROUBLE, EventKind.KERNEL_LOG, BOOT, TROUBLE, FINE, names="x"),
            *rows("b", TROUBLE, names="y"),  # its boot was never told
            *rows("a", BOOT, TROUBLE, flags=EventFlag.HISTORY, names="old"),
            *rows("a", TROUBLE, flags=f"{EventFlag.MORE_EVENTS},{EventFlag.OLDER_BOOT}", names="o"),
            *rows("a", TROUBLE, flags=EventFlag.MORE_EVENTS, names="z"),
        ],
    )
    expected = [("a", "x3"), ("a", "x4"), ("a", "x5"), ("b", "y0"), ("a", "z0")]
    assert found(connection) == expected


def test_it_is_found_by_the_index_among_a_hundred_thousand_events(connection: Connection) -> None:
    for number in range(20):
        lines = [EventKind.KERNEL_LOG] * 5_000
        connection.execute(insert(events), rows(f"n{number}", BOOT, *lines, TROUBLE))
    reads = [line for line in plan_of(connection).splitlines() if " events" in line]
    assert len(reads) == 2
    assert all("ix_events_standing" in line for line in reads), reads
    began = time.process_time()
    assert len(found(connection)) == 40
    assert time.process_time() - began < 0.1, "a scan takes longer"


def plan_of(connection: Connection) -> str:
    """How SQLite goes about the query."""
    said: list[tuple[str, object]] = []

    def note(
        _connection: Connection, _cursor: object, statement: str, given: object, *_: object
    ) -> None:
        said.append((statement, given))

    engine: Engine = connection.engine
    event.listen(engine, "before_cursor_execute", note)
    list(read_standing_events(connection))
    event.remove(engine, "before_cursor_execute", note)
    (statement, given), *_ = said
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)  # type: ignore[arg-type]  # as the driver got them
    return "\n".join(str(row[-1]) for row in plan)
