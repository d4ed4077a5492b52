"""The exclusion stream: resume, order, shutdown, and that nothing is lost or doubled by kill -9."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from gpuwarden_wire.batches import Stream
from tests.builders.feed import (
    digest_of,
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    xid_event,
)
from tests.builders.server import (
    Feeder,
    Running,
    ServerProcess,
    make_client,
    make_gpu,
    running_server,
    wait_until,
)
from tests.builders.stores import StoreKind, query

BOTH_STORES = True

SLOTS = [f"0000:{0x10 + number:02x}:00.0" for number in range(8)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("feed"))) as running:
        yield running


def introduced(server: Running, name: str) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(number, name) for number in range(8)])
    return feeder


def revoke_all(server: Running) -> None:
    for decision in get(server, "/v1/decisions", phase="in_force")["items"]:
        server.admin.post(
            f"/v1/decisions/{decision['id']}/revoke", json={"reason": "next"}
        ).raise_for_status()


@pytest.mark.postgres
def test_a_reader_that_comes_back_gets_what_it_missed(server: Running) -> None:
    node = introduced(server, "missed")
    with reading_feed(server) as feed:
        assert feed.told[0].event == "state"
        node.events(xid_event(79, SLOTS[0]))
        seen = feed.wait_added("GPU-missed-0")
    node.events(xid_event(79, SLOTS[1]))
    wait_until(lambda: exclusions_of(server)["epoch"] == seen.body["epoch"] + 1, "one more")
    revoke_all(server)
    with reading_feed(server, last_event_id=seen.id) as feed:
        feed.wait_removed("GPU-missed-0")
        feed.wait_removed("GPU-missed-1")
        epochs = [one.body["epoch"] for one in feed.told]
    assert epochs == list(range(seen.body["epoch"] + 1, seen.body["epoch"] + 1 + len(epochs)))
    assert feed.added() == ["GPU-missed-1"]
    node.close()


@pytest.mark.parametrize("last", ["", "nonsense", "0" * 32 + ":1", "{feed}:999999", "{feed}:-1"])
def test_a_reader_with_an_unknown_position_is_told_where_the_feed_stands(
    server: Running, last: str
) -> None:
    published = exclusions_of(server)
    with reading_feed(server, last.replace("{feed}", published["feed_id"])) as feed:
        (first,) = feed.told
    assert first.event == "state"
    assert first.body == {k: published[k] for k in ("feed_id", "epoch", "count", "digest")}
    assert first.id == f"{published['feed_id']}:{published['epoch']}"


def test_the_set_carries_its_position_as_etag(server: Running) -> None:
    answer = server.admin.get("/v1/exclusions", params={"format": "hosts"})
    published = exclusions_of(server)
    assert answer.headers["etag"] == f'"{published["feed_id"]}:{published["epoch"]}"'
    assert answer.headers["content-type"].startswith("text/plain")


def test_the_stream_needs_a_key(server: Running) -> None:
    with server.client(None) as client:
        refused = client.get("/v1/exclusions/stream")
    assert (refused.status_code, refused.json()["code"]) == (401, "no_valid_key")


def test_open_streams_do_not_hold_the_shutdown(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        with reading_feed(server) as feed:
            assert server.app is not None
            began = time.monotonic()
            server.app.state.base.stopping.set()
            assert feed.ended.wait(10.0)
        assert time.monotonic() - began < 10.0


@pytest.mark.serial
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    process = ServerProcess(settings)
    try:
        server = process.start()
        key = server.mint("agent", "node-k")
        node = Feeder(server, key, "node-k")
        node.introduce([make_gpu(number, "node-k") for number in range(8)])
        sent = []
        for round_number in range(2):
            events = [xid_event(79, SLOTS[4 * round_number + n]) for n in range(4)]
            batch = node.batch(Stream.EVENTS, events=tuple(events))
            sent += [event.id for event in events]
            with suppress(httpx.TransportError):
                node.post(batch)
            node.close()
            server.admin.close()
            process.kill()  # with or without the judgement made
            server = process.start()
            node.client = make_client(server.url, key)
            node.send(batch)
        wait_until(lambda: exclusions_of(server)["count"] == 8, "all eight excluded")
        published = exclusions_of(server)
        assert published["digest"] == digest_of(published["exclusions"])
        stored = [one["id"] for one in get(server, "/v1/events", limit=1000)["items"]]
        assert sorted(i for i in stored if i in sent) == sorted(sent)
        log = query(tmp_path / "state", "SELECT epoch, count FROM feed_log ORDER BY epoch")
        assert [epoch for epoch, _ in log] == list(range(1, len(log) + 1))
        assert log[-1] == (published["epoch"], 8)
        per_gpu = query(
            tmp_path / "state",
            "SELECT entity, count(*) FROM incidents GROUP BY entity ORDER BY entity",
        )
        assert per_gpu == [(f"GPU-node-k-{n}", 1) for n in range(8)]
        decisions = query(
            tmp_path / "state", "SELECT entity, count(*) FROM decisions GROUP BY entity"
        )
        assert {count for _, count in decisions} == {1}
        assert len(decisions) == 8
        with reading_feed(server, f"{published['feed_id']}:0") as feed:
            wait_until(lambda: len(feed.changes()) == len(log), "the same order after the restart")
        assert sorted(feed.added()) == [f"GPU-node-k-{n}" for n in range(8)]
        node.close()
        server.admin.close()
        assert process.terminate() == 0
    finally:
        process.close()
