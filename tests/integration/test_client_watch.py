"""Following the exclusion feed over real HTTP: resume, resync, lost servers."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuwarden_runtime.async_client import AsyncClient
from gpuwarden_runtime.async_watch import AsyncExclusionWatch
from gpuwarden_runtime.cache import CachedSet, SetCache
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.feed import FeedState, Floor
from gpuwarden_runtime.records import Exclusion
from gpuwarden_runtime.watch import ExclusionWatch
from gpuwarden_wire.acknowledgement import Problem
from tests.fakes.api_server import FakeApi, serve

GPU = Exclusion(entity_kind="gpu", entity="GPU-1", node_id="n1", gpu_uuid="GPU-1")
NODE = Exclusion(entity_kind="node", entity="n2", node_id="n2")
BUSY = Problem(type="urn:x", title="Busy", status=503, code="busy")


@dataclass
class Heard:
    sets: queue.SimpleQueue[FeedState] = field(default_factory=queue.SimpleQueue)
    said: list[str] = field(default_factory=list)

    def next(self) -> set[str]:
        return set(self.sets.get(timeout=10.0).exclusions)


class Watching:
    """Starts a watch of one kind, and ends it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    @contextmanager
    def __call__(
        self, url: str, cache: SetCache | None = None, floor: Floor | None = None
    ) -> Iterator[tuple[Heard, ExclusionWatch | AsyncExclusionWatch]]:
        heard = Heard()
        start = _watch_in_a_thread if self._kind == "sync" else _watch_in_a_task
        with start(RuntimeSettings(url=url), heard, cache, floor) as watch:
            yield heard, watch


@contextmanager
def _watch_in_a_thread(
    settings: RuntimeSettings, heard: Heard, cache: SetCache | None, floor: Floor | None
) -> Iterator[ExclusionWatch]:
    with Client(settings) as client:
        watch = ExclusionWatch(client, heard.sets.put, heard.said.append, cache, floor)
        watch.start()
        yield watch
        assert watch.stop()


@contextmanager
def _watch_in_a_task(
    settings: RuntimeSettings, heard: Heard, cache: SetCache | None, floor: Floor | None
) -> Iterator[AsyncExclusionWatch]:
    begun: queue.SimpleQueue[tuple[AsyncExclusionWatch, Callable[[], None]]] = queue.SimpleQueue()

    async def follow() -> None:
        end = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with (
            AsyncClient(settings) as client,
            AsyncExclusionWatch(client, heard.sets.put, heard.said.append, cache, floor) as watch,
        ):
            begun.put((watch, lambda: (loop.call_soon_threadsafe(end.set), None)[1]))
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(follow()))
    thread.start()
    watch, end = begun.get(timeout=10.0)
    try:
        yield watch
    finally:
        end()
        thread.join(10.0)
    assert not thread.is_alive()


@pytest.fixture(params=["sync", "async"])
def watching(request: pytest.FixtureRequest) -> Watching:
    return Watching(request.param)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_first_set_then_each_change(watching: Watching) -> None:
    api = FakeApi()
    with serve(api) as url, watching(url) as (heard, watch):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.exclude(GPU)
        assert heard.next() == {"gpu:GPU-1"}
        api.lift(GPU.key)
        assert heard.next() == set()
        assert watch.state is not None
        assert watch.state.event_id == "feed-a:3"
        gets = [path for method, path, _ in api.requests if path == "/v1/exclusions"]
        assert len(gets) == 1  # the stream was enough for the rest


def test_what_was_missed_while_the_connection_was_cut_is_resumed(watching: Watching) -> None:
    api = FakeApi()
    with serve(api) as url, watching(url) as (heard, _):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.cut_streams()
        wait_for(lambda: not api.streams)
        api.exclude(GPU)
        assert heard.next() == {"gpu:GPU-1"}
        assert [path for _, path, _ in api.requests].count("/v1/exclusions") == 1


def test_digest_mismatch_fetches_the_whole_set(watching: Watching) -> None:
    api = FakeApi()
    with serve(api) as url, watching(url) as (heard, _):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.falsify_digest = True
        api.exclude(GPU)
        assert heard.next() == {"gpu:GPU-1"}
        assert [path for _, path, _ in api.requests].count("/v1/exclusions") == 2


def test_another_feed_is_taken_over_whole(watching: Watching) -> None:
    api = FakeApi()
    with serve(api) as url, watching(url) as (heard, watch):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.epoch = 40
        api.exclude(GPU)
        assert heard.next() == {"gpu:GPU-1"}
        api.replace_feed("feed-b", 2, (NODE,))
        assert heard.next() == {"node:n2"}
        assert watch.state is not None
        assert watch.state.event_id == "feed-b:2"


def test_lower_epoch_of_the_same_feed_changes_nothing(watching: Watching) -> None:
    api = FakeApi()
    api.epoch = 40
    with serve(api) as url, watching(url) as (heard, watch):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.epoch = 5
        api.exclude(GPU)  # a server that fell behind: epoch 6
        api.epoch = 50
        api.exclude(NODE)
        assert heard.next() == {"gpu:GPU-1", "node:n2"}
        assert watch.state is not None
        assert watch.state.epoch == 51


def test_floor_keeps_the_last_set(watching: Watching) -> None:
    api = FakeApi()
    floor = Floor(frozenset({"n1", "n2"}), min_usable=2)
    with serve(api) as url, watching(url, floor=floor) as (heard, watch):
        assert heard.next() == set()
        wait_for(lambda: bool(api.streams))
        api.replace_feed("feed-b", 2, (NODE,))
        wait_for(lambda: any("not taken over" in sentence for sentence in heard.said))
        assert watch.state is not None
        assert watch.state.feed_id == "feed-a"


def test_server_away_keeps_the_set_and_says_so_once_each_way(
    tmp_path: Path, watching: Watching
) -> None:
    api = FakeApi()
    api.exclude(GPU)
    cache = SetCache(tmp_path, "http://any")
    with serve(api) as url, watching(url, cache) as (heard, watch):
        assert heard.next() == {"gpu:GPU-1"}
        wait_for(lambda: bool(api.streams))
        api.problems["GET", "/v1/exclusions/stream"] = BUSY
        api.cut_streams()
        wait_for(lambda: any("lost" in sentence for sentence in heard.said))
        assert watch.state is not None
        assert set(watch.state.exclusions) == {"gpu:GPU-1"}
        api.problems.clear()
        wait_for(lambda: any("is back" in sentence for sentence in heard.said))
        assert [sentence.split(":")[0] for sentence in heard.said] == [
            "exclusion feed lost",
            "exclusion feed is back",
        ]
    cached = cache.load(time.time())
    assert isinstance(cached, CachedSet)
    assert [item.entity for item in cached.content.exclusions] == ["GPU-1"]


def test_cache_that_cannot_be_written_is_said_once(tmp_path: Path, watching: Watching) -> None:
    (tmp_path / "file").write_text("")
    api = FakeApi()
    with serve(api) as url:
        cache = SetCache(tmp_path / "file", url)
        with watching(url, cache) as (heard, _):
            assert heard.next() == set()
            wait_for(lambda: bool(api.streams))
            api.exclude(GPU)
            assert heard.next() == {"gpu:GPU-1"}
            assert len(heard.said) == 1
            assert "cannot be cached" in heard.said[0]


def test_stop_ends_a_quiet_stream_at_once() -> None:
    api = FakeApi()
    with serve(api) as url, Client(RuntimeSettings(url=url)) as client:
        watch = ExclusionWatch(client, lambda state: None, print)
        watch.start()
        wait_for(lambda: bool(api.streams))
        began = time.monotonic()
        assert watch.stop()
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("body", ["nonsense", "{}"])
def test_unreadable_set_is_an_answer_of_somebody_else(body: str, watching: Watching) -> None:
    api = FakeApi()
    api.answers["GET", "/v1/exclusions"] = body
    with serve(api) as url, watching(url) as (heard, watch):
        wait_for(lambda: any("lost" in sentence for sentence in heard.said))
        assert watch.state is None
