"""Streams of incidents and states: what is told, to whom, and from where one resumes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders.feed import FeedReader, get, quick_settings, reading_feed, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until

INCIDENTS, STATES = "/v1/incidents/stream", "/v1/states/stream"
SLOT = "0000:10:00.0"
POOLS = """
[[pools]]
name = "training"
nodes = ["train-*"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = quick_settings(tmp_path_factory.mktemp("streams"))
    assert settings.policy_file is not None
    with settings.policy_file.open("a") as policy:
        policy.write(POOLS)
    with running_server(settings) as running:
        yield running


def fail_gpu(server: Running, node_id: str) -> str:
    """A GPU falls off the bus; its uuid."""
    feeder = Feeder(server, server.mint("agent", node_id), node_id)
    feeder.introduce([make_gpu(0, node_id)])
    feeder.events(xid_event(79, SLOT))
    feeder.close()
    return f"GPU-{node_id}-0"


def told(feed: FeedReader, entity: str) -> list[dict[str, Any]]:
    return [dict(one.body) for one in feed.told if one.body.get("entity") == entity]


def wait_told(feed: FeedReader, entity: str, after: str) -> dict[str, Any]:
    """The move of an entity into `after`."""

    def find() -> list[dict[str, Any]]:
        return [one for one in told(feed, entity) if one["after"] == after]

    wait_until(find, f"{entity} told as {after}", 60.0)
    return find()[0]


def test_moves_of_an_incident_are_told(server: Running) -> None:
    with reading_feed(server, path=INCIDENTS) as feed:
        assert feed.told[0].event == "position"
        gpu = fail_gpu(server, "told-1")
        move = wait_told(feed, gpu, "open")
        incident = get(server, f"/v1/incidents/{move['incident_id']}")
        assert move == {
            "row": move["row"],
            "incident_id": incident["id"],
            "entity_kind": "gpu",
            "entity": gpu,
            "node_id": "told-1",
            "before": None,
            "after": "open",
            "fault_class": incident["fault_class"],
            "severity": incident["severity"],
            "reason": move["reason"],
            "author": "gpuwarden",
            "at": incident["opened_at"],
        }
        body = {"reason": "seen"}
        server.admin.post(f"/v1/incidents/{incident['id']}/acknowledge", json=body)
        assert wait_told(feed, gpu, "acknowledged")["author"] == "first admin"
    assert {one.event for one in feed.told} == {"position", "incident"}
    rows = [one.body["row"] for one in feed.told if one.event == "incident"]
    assert rows == sorted(set(rows))


def test_changes_of_states_are_told(server: Running) -> None:
    with reading_feed(server, path=STATES) as feed:
        gpu = fail_gpu(server, "told-2")
        move = wait_told(feed, gpu, "excluded")
    assert (move["entity_kind"], move["node_id"]) == ("gpu", "told-2")
    assert move["author"] == "gpuwarden"


@pytest.mark.parametrize("query", ["?node=train-a&node=none", "?pool=training"])
def test_a_reader_may_ask_for_nodes_and_pools(server: Running, query: str) -> None:
    tag = "n" if "node" in query else "p"
    mine = "train-a" if tag == "n" else "train-b"
    with (
        reading_feed(server, path=INCIDENTS) as all_of_it,
        reading_feed(server, path=INCIDENTS + query) as some,
    ):
        other = fail_gpu(server, f"serve-{tag}")
        own = fail_gpu(server, mine)
        wait_told(all_of_it, other, "open")
        wait_told(some, own, "open")
    assert told(some, other) == []


def test_a_narrowed_key_hears_of_its_nodes_only(server: Running) -> None:
    wish = {"role": "reader", "scope": {"pools": ["training"]}}
    key = server.admin.post("/v1/keys", json=wish).json()["key"]
    with (
        reading_feed(server, path=STATES) as all_of_it,
        reading_feed(server, path=STATES, key=key) as some,
        reading_feed(server, path=f"{STATES}?node=serve-k", key=key) as forbidden,
    ):
        other, own = fail_gpu(server, "serve-k"), fail_gpu(server, "train-k")
        wait_told(all_of_it, other, "excluded")
        wait_told(all_of_it, own, "excluded")
        wait_told(some, own, "excluded")
    assert told(some, other) == told(forbidden, other) == []


@pytest.mark.parametrize("path", [INCIDENTS, STATES])
def test_a_reader_resumes_over_a_restart(tmp_path: Path, path: str) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as first:
        with reading_feed(first, path=path) as feed:
            gpu = fail_gpu(first, "node-r")
            wait_until(lambda: told(feed, gpu), "a first move", 60.0)
            seen = next(one for one in feed.told if one.body.get("entity") == gpu)
        later = fail_gpu(first, "node-s")
        count = "gpuwarden_feed_changes_total"
        stream = path.split("/")[2]
        wait_until(lambda: first.figure(count, stream=stream) >= 2, "both are told", 60.0)
    with (
        running_server(settings) as second,
        reading_feed(second, seen.id, path) as feed,
        reading_feed(second, f"{'0' * 32}:1", path) as lost,
    ):
        wait_until(lambda: told(feed, later), "what came meanwhile", 60.0)
        rows = [one.body["row"] for one in feed.told]
        assert rows == list(range(seen.body["row"] + 1, seen.body["row"] + 1 + len(rows)))
        assert lost.told[0].event == "position"
        assert lost.told[0].body["row"] >= rows[0]


def test_no_stream_holds_the_shutdown(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path)) as server:
        began = time.monotonic()
        with (
            reading_feed(server, path=INCIDENTS) as incidents,
            reading_feed(server, path=STATES) as states,
            reading_feed(server) as exclusions,
        ):
            assert server.app is not None
            server.app.state.base.stopping.set()
            for feed in (incidents, states, exclusions):
                assert feed.ended.wait(10.0)
        assert time.monotonic() - began < 10.0


def test_head_and_refusals(server: Running) -> None:
    assert server.admin.head(INCIDENTS).headers["content-type"] == "text/event-stream"
    many = "&".join(f"node=n{number}" for number in range(1001))
    answer = server.admin.get(f"{INCIDENTS}?{many}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value")
