"""The front door over real HTTP and real SQLite: what is taken, and how it is placed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_wire.batches import ShedRange, Stream, pack_table
from gpuwarden_wire.codec import Encoding, decode_problem
from gpuwarden_wire.events import Backlog, EventKind
from gpuwarden_wire.metrics import EntityKind, MetricKind, Storage
from gpuwarden_wire.readings import Unavailable
from gpuwarden_wire.schema import Column, Schema
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.builders.stores import StoreKind, query

BOTH_STORES = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ingest")


@pytest.fixture(scope="module")
def server(folder: Path, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(make_settings(folder)) as running:
        yield running


@pytest.fixture
def feeder(server: Running, request: pytest.FixtureRequest) -> Iterator[Feeder]:
    node = request.node.name.replace("[", "-").rstrip("]")
    made = Feeder(server, server.mint("agent", node), node)
    yield made
    made.close()


def rows(folder: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    for value in values:
        statement = statement.replace("?", f"'{value}'", 1)
    return query(folder / "state", statement)


def events_of(folder: Path, node_id: str) -> list[tuple[object, ...]]:
    return rows(
        folder,
        "SELECT id, entity_kind, entity, flags FROM events WHERE node_id = ? ORDER BY row",
        node_id,
    )


@pytest.mark.parametrize("encoding", list(Encoding))
def test_events_are_stored_once_whatever_the_encoding(
    feeder: Feeder, folder: Path, encoding: Encoding
) -> None:
    feeder.encoding = encoding
    feeder.introduce()
    event = make_event()
    first = feeder.events(event)
    again = feeder.events(event)  # the same fact in another batch
    assert (first.applied_seq, first.durable_seq) == (2, 2)
    assert again.applied_seq == 3
    assert [row[0] for row in events_of(folder, feeder.node_id)].count(event.id) == 1


def test_two_nodes_may_have_the_same_event_id(
    server: Running, feeder: Feeder, folder: Path
) -> None:
    other = Feeder(server, server.mint("agent", "same-image"), "same-image")
    other.events(make_event("file:801:131:4096"))
    other.close()
    feeder.events(make_event("file:801:131:4096"))
    assert len(events_of(folder, feeder.node_id)) == len(events_of(folder, "same-image")) == 1


@pytest.mark.postgres
def test_a_replay_is_answered_and_applied_once(feeder: Feeder, folder: Path) -> None:
    batch = feeder.batch(Stream.EVENTS, events=(make_event(),))
    assert not feeder.send(batch).replayed
    later = msgspec.structs.replace(batch, sent_at=batch.sent_at + 9, more_events=True)
    ack = feeder.send(later)
    assert (ack.replayed, ack.applied_seq, ack.durable_seq) == (True, 1, 1)
    assert len(events_of(folder, feeder.node_id)) == 1


@pytest.mark.parametrize("stream", list(Stream))
@pytest.mark.postgres
def test_the_same_sequence_with_other_content_is_kept_aside(
    server: Running, feeder: Feeder, folder: Path, stream: Stream
) -> None:
    table, schema = gpu_table({"GPU-c": [50.0, 100.0, 5.0]})
    other, _ = gpu_table({"GPU-c": [51.0, 100.0, 5.0]})
    contents: dict[Stream, tuple[dict[str, Any], dict[str, Any]]] = {
        Stream.EVENTS: ({"events": (make_event(),)}, {"events": (make_event(),)}),
        Stream.TELEMETRY: ({"tables": (table,), "schemas": (schema,)}, {"tables": (other,)}),
    }
    first, second = contents[stream]
    feeder.send(feeder.batch(stream, seq=1, **first))
    answer = feeder.post(feeder.batch(stream, seq=1, **second))
    problem = decode_problem(answer.content)
    assert answer.status_code == 409
    assert problem is not None
    assert problem.code == "sequence_conflict"
    kept = rows(folder, "SELECT stream, seq FROM conflicts WHERE node_id = ?", feeder.node_id)
    assert kept == [(str(stream), 1)]
    assert server.figure("gpuwarden_ingest_refused_total", code="sequence_conflict") >= 1


def test_a_schema_is_asked_for_once_for_the_whole_fleet(server: Running, feeder: Feeder) -> None:
    metrics = ("gpu_memory_used_bytes", "gpu_pcie_replay_total")
    table, schema = gpu_table({"GPU-s": [1.0, 2.0]}, metrics=metrics)
    answer = feeder.post(feeder.batch(Stream.TELEMETRY, seq=1, tables=(table,)))
    problem = decode_problem(answer.content)
    assert answer.status_code == 428
    assert problem is not None
    assert problem.schemas == (schema.hash,)
    feeder.send(feeder.batch(Stream.TELEMETRY, seq=1, tables=(table,), schemas=(schema,)))
    other = Feeder(server, server.mint("agent", "schema-other"), "schema-other")
    known, _ = gpu_table({"GPU-t": [1.0, 2.0]}, metrics=metrics)
    assert other.telemetry([known]).applied_seq == 1
    other.close()


def test_a_kernel_line_finds_its_gpu_by_slot_even_after_the_gpu_is_lost(
    feeder: Feeder, folder: Path
) -> None:
    gpus = [make_gpu(0, feeder.node_id), make_gpu(1, feeder.node_id)]
    feeder.introduce(gpus)
    feeder.events(feeder.inventory(gpus[:1]))
    lost = make_event(pci_bus_id="00000000:11:00", entity_kind=EntityKind.GPU, xid=79)
    present = make_event(pci_bus_id="0000:10:00.0", xid=31)
    nowhere = make_event(pci_bus_id="0000:99:00.0", entity_kind=EntityKind.GPU, xid=48)
    feeder.events(lost, present, nowhere)
    assert events_of(folder, feeder.node_id)[3:] == [
        (lost.id, "gpu", gpus[1].gpu_uuid, ""),
        (present.id, "gpu", gpus[0].gpu_uuid, ""),
        (nowhere.id, "node", feeder.node_id, "unresolved"),
    ]


def test_an_inventory_counts_for_the_events_behind_it_in_the_same_batch(
    feeder: Feeder, folder: Path
) -> None:
    gpu = make_gpu(0, feeder.node_id)
    line = make_event(pci_bus_id=gpu.pci_bus_id, xid=79)
    feeder.events(feeder.boot(), feeder.inventory([gpu]), line)
    assert events_of(folder, feeder.node_id)[-1][:3] == (line.id, "gpu", gpu.gpu_uuid)


@pytest.mark.postgres
def test_a_gpu_that_moves_changes_slot_and_node(
    server: Running, feeder: Feeder, folder: Path
) -> None:
    gpu = make_gpu(0, feeder.node_id)
    feeder.introduce([gpu])
    feeder.events(feeder.inventory([msgspec.structs.replace(gpu, pci_bus_id="0000:77:00.0")]))
    feeder.events(feeder.inventory([]))
    other = Feeder(server, server.mint("agent", "moved-to"), "moved-to")
    other.introduce([gpu])
    other.close()
    slots = rows(
        folder,
        "SELECT node_id, pci_bus_id, until IS NULL FROM gpu_slots WHERE gpu_uuid = ? ORDER BY id",
        gpu.gpu_uuid,
    )
    assert slots == [
        (feeder.node_id, "0000:10:00.0", 0),
        (feeder.node_id, "0000:77:00.0", 0),
        ("moved-to", "0000:10:00.0", 1),
    ]


def test_a_live_nodes_gpu_is_not_given_to_a_node_that_claims_it(
    server: Running, feeder: Feeder, folder: Path
) -> None:
    gpu = make_gpu(0, feeder.node_id)
    feeder.introduce([gpu])
    thief = Feeder(server, server.mint("agent", "thief"), "thief")
    thief.introduce([gpu])
    thief.events(make_event(entity_kind=EntityKind.GPU, entity=gpu.gpu_uuid, xid=79))
    before = server.figure("gpuwarden_ingest_oddities_total", kind="foreign_row")
    table, schema = gpu_table({"GPU-own": [40.0, 90.0, 1.0], gpu.gpu_uuid: [99.0, 9.0, 1.0]})
    thief.telemetry([table], [schema])
    owner = "SELECT node_id FROM gpus WHERE gpu_uuid = ?"
    assert rows(folder, owner, gpu.gpu_uuid) == [(feeder.node_id,)]
    assert events_of(folder, "thief")[-1][1:] == ("node", "thief", "unresolved")
    assert server.figure("gpuwarden_ingest_oddities_total", kind="foreign_row") == before + 1
    feeder.events(feeder.inventory([]))  # given up: the claim is granted without asking again
    thief.telemetry([table])
    thief.close()
    assert rows(folder, owner, gpu.gpu_uuid) == [("thief",)]
    assert server.figure("gpuwarden_ingest_oddities_total", kind="foreign_row") == before + 1


def test_a_second_live_spool_is_refused_and_takes_over_after_silence(
    server: Running, feeder: Feeder, folder: Path
) -> None:
    feeder.interval_s = 0.2
    feeder.introduce()
    second = Feeder(server, feeder.key, feeder.node_id, interval_s=0.2)
    answer = second.post(second.batch(Stream.EVENTS, events=(make_event(),)))
    problem = decode_problem(answer.content)
    assert answer.status_code == 409
    assert problem is not None
    assert problem.code == "node_claimed"
    assert feeder.spool_id in problem.detail
    assert second.spool_id in problem.detail
    time.sleep(0.7)  # three intervals of silence
    second.seqs[Stream.EVENTS] = 0
    assert second.events(make_event()).applied_seq == 1
    late = feeder.events(make_event("kmsg:late"))
    second.close()
    assert late.applied_seq == 2
    stored = {row[0]: row[3] for row in events_of(folder, feeder.node_id)}
    assert stored["kmsg:late"] == "history"


@pytest.mark.postgres
def test_spools_without_end_are_forgotten_from_the_oldest(feeder: Feeder, folder: Path) -> None:
    spools = [f"{number:032x}" for number in range(20)]
    for spool_id in spools:
        feeder.spool_id, feeder.interval_s = spool_id, 0.001
        feeder.seqs[Stream.EVENTS] = 0
        feeder.events(make_event())
        time.sleep(0.005)
    kept = rows(
        folder,
        "SELECT spool_id, standing FROM spools WHERE node_id = ? ORDER BY first_seen_at",
        feeder.node_id,
    )
    assert kept == [(spool, "superseded") for spool in spools[4:-1]] + [(spools[-1], "live")]
    assert len(events_of(folder, feeder.node_id)) == 20


def test_a_gap_is_taken_and_counted_unless_declared(server: Running, feeder: Feeder) -> None:
    def missing(why: str) -> float:
        return server.figure("gpuwarden_ingest_missing_sequences_total", why=why)

    feeder.events(make_event(), seq=1)
    gap, shed = missing("gap"), missing("shed")
    feeder.events(make_event(), seq=5, shed=(ShedRange(Stream.EVENTS, 2, 4),))
    assert (missing("gap"), missing("shed")) == (gap, shed + 3)
    ack = feeder.events(make_event(), seq=8)
    assert ack.durable_seq == 8
    assert missing("gap") == gap + 2


def test_future_and_unknown_boot_are_kept_and_flagged(feeder: Feeder, folder: Path) -> None:
    feeder.introduce()
    ahead = make_event(observed_at=time.time() + 3600)
    feeder.events(ahead)
    feeder.boot_id = "boot-nobody-announced"
    stray = make_event(backlog=Backlog.FIRST_LOOK)
    feeder.events(stray, more_events=True)
    stored = {row[0]: row[3] for row in events_of(folder, feeder.node_id)}
    assert stored[ahead.id] == "future"
    assert stored[stray.id] == "first_look,more_events,unknown_boot"


def test_telemetry_is_durable_only_after_its_checkpoint(feeder: Feeder) -> None:
    table, schema = gpu_table({"GPU-d": [50.0, 300.0, Unavailable("timeout")]})
    ack = feeder.telemetry([table], [schema])
    assert (ack.applied_seq, ack.durable_seq) == (1, 0)
    seen = [0]

    def durable() -> bool:
        seen[0] = feeder.telemetry([table]).durable_seq
        return seen[0] > 0

    wait_until(durable, "a checkpoint made telemetry durable")
    assert seen[0] < feeder.seqs[Stream.TELEMETRY]


def test_missing_telemetry_holds_back_what_may_be_trimmed(feeder: Feeder) -> None:
    table, schema = gpu_table({"GPU-h": [50.0, 300.0, 1.0]})
    feeder.telemetry([table], [schema], seq=1)
    feeder.telemetry([table], seq=4)
    wait_until(lambda: feeder.telemetry([table], seq=5).durable_seq == 1, "1 is durable")
    feeder.telemetry([table], seq=3)
    feeder.telemetry([table], seq=2)
    wait_until(lambda: feeder.telemetry([table], seq=5).durable_seq == 5, "all is durable")


def test_the_verdict_rides_on_a_connections_first_batch_and_on_changes_only(
    server: Running, feeder: Feeder
) -> None:
    first = feeder.introduce([make_gpu(0, feeder.node_id)])
    assert first.verdict is not None
    assert first.verdict.node_id == feeder.node_id
    wait_until(lambda: feeder.events().verdict is None, "nothing changes any more")
    other = Feeder(server, feeder.key, feeder.node_id, spool_id=feeder.spool_id, seqs=feeder.seqs)
    verdict = other.events().verdict
    other.close()
    assert verdict is not None
    assert [gpu.entity for gpu in verdict.gpus] == [f"GPU-{feeder.node_id}-0"]
    assert feeder.events().feed_id == first.feed_id != ""


def test_unknown_metrics_are_kept(server: Running, feeder: Feeder) -> None:
    schema = Schema(EntityKind.NODE, (Column("node_new_gauge", Storage.F32, MetricKind.GAUGE, ""),))
    feeder.telemetry([pack_table(schema, time.time(), {"": [7.0]})], [schema])
    assert server.app is not None
    guarded = server.app.state.base.state
    with guarded.lock:
        view = guarded.state.view(EntityKind.NODE)
        row = [ref.key for ref in view.refs].index(feeder.node_id)
        assert view.last("node_new_gauge")[row] == 7.0


@pytest.mark.postgres
def test_the_directory_survives_a_restart(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    with running_server(settings) as first:
        feeder = Feeder(first, first.mint("agent", "n1"), "n1")
        feeder.introduce([make_gpu(0, "n1")], nics=("mlx5_0/1",), labels={"rack": "r1"})
        feeder.close()
        before = _directory(first)
    with running_server(settings) as second:
        after = _directory(second)
        assert after.nodes() == before.nodes()
        assert after.gpus() == before.gpus()
        assert after.knows_boot("n1", feeder.boot_id)


def _directory(server: Running) -> FleetDirectory:
    assert server.app is not None
    directory = server.app.state.base.directory
    assert isinstance(directory, FleetDirectory)
    return directory


def test_a_full_disk_is_a_503_that_loses_nothing(tmp_path: Path, store_kind: StoreKind) -> None:
    if store_kind is not StoreKind.SQLITE:
        pytest.skip("fills the disk by SQLite's own limit")
    with running_server(make_settings(tmp_path)) as server:
        feeder = Feeder(server, server.mint("agent", "n1"), "n1")
        feeder.introduce()
        assert server.app is not None
        writer = server.app.state.base.store.state.writer
        # SQLite's own limit answers as a full disk does: "database or disk is full".
        pages = writer.call(lambda db: db.exec_driver_sql("PRAGMA page_count").scalar_one())
        writer.call(lambda db: db.exec_driver_sql(f"PRAGMA max_page_count={pages}").scalar_one())
        batch = feeder.batch(
            Stream.EVENTS, events=tuple(make_event(text="x" * 1000) for _ in range(200))
        )
        answer = feeder.post(batch)
        assert (answer.status_code, answer.json()["code"]) == (503, "storage_failed")
        writer.call(lambda db: db.exec_driver_sql("PRAGMA max_page_count=1000000").scalar_one())
        ack = feeder.send(batch)
        assert (ack.replayed, ack.durable_seq) == (False, 2)
        feeder.close()
    assert len(events_of(tmp_path, "n1")) == 202


def test_gpu_back_and_boot_events_do_not_disturb(feeder: Feeder, folder: Path) -> None:
    feeder.introduce([make_gpu(0, feeder.node_id)])
    gone = make_event(kind=EventKind.GPU_LOST, entity_kind=EntityKind.GPU, entity="GPU-unheard")
    feeder.events(gone)
    assert events_of(folder, feeder.node_id)[-1] == (gone.id, "gpu", "GPU-unheard", "")
