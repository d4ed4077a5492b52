"""Broken GPUs that are put into another node: the exclusion goes with the part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.feed import FeedState
from gpuwarden_runtime.watch import ExclusionWatch
from tests.builders.feed import (
    FeedReader,
    Told,
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    xid_event,
)
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.fakes.waiting import wait_for

SLOT, OTHER_SLOT = "0000:10:00.0", "0000:11:00.0"
BROKEN = "GPU-a-0"


@dataclass
class House:
    """Three nodes of two GPUs; one may be out."""

    server: Running
    nodes: dict[str, Feeder]

    def swap(self) -> None:
        """A technician swaps the boards in the first slots of `a` and `b`."""
        of_a = [make_gpu(0, "a", gpu_uuid="GPU-b-0"), make_gpu(1, "a")]
        of_b = [make_gpu(0, "b", gpu_uuid=BROKEN), make_gpu(1, "b")]
        self.has("a", [make_gpu(1, "a")])  # taken out of both, then put in
        self.has("b", of_b)
        self.has("a", of_a)

    def has(self, name: str, gpus: list[Any]) -> None:
        self.nodes[name].events(self.nodes[name].inventory(gpus))

    def hosts(self, form: str = "hosts") -> list[str]:
        text = self.server.admin.get("/v1/exclusions", params={"format": form}).text
        return text.replace(",", "\n").split()

    def usable(self) -> dict[str, str]:
        said = get(self.server, "/v1/verdicts")["verdicts"]
        return {one["node_id"]: one["node"]["usable"] for one in said}

    def live(self, node: str) -> list[tuple[str, str]]:
        items = get(self.server, "/v1/decisions", node=node, phase="live")["items"]
        return [(one["entity"], one["phase"]) for one in items]

    def phase_on(self, name: str) -> list[str]:
        return [phase for _, phase in self.live(name)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with running_server(quick_settings(tmp_path, max_nodes=1, dwell_s=600.0)) as server:
        nodes = {name: Feeder(server, server.mint("agent", name), name) for name in "abc"}
        for name, node in nodes.items():
            node.introduce([make_gpu(number, name) for number in range(2)])
        yield House(server, nodes)
        for node in nodes.values():
            node.close()


def test_the_exclusion_of_a_moved_gpu_is_its_new_nodes(house: House) -> None:
    with reading_feed(house.server) as feed:
        house.nodes["a"].events(xid_event(79, SLOT))
        before = feed.wait_added(BROKEN)
        assert (house.hosts(), house.usable()["a"]) == (["a"], "no")
        house.swap()
        after = wait_told(feed, node_id="b")
    assert after.body["epoch"] > before.body["epoch"]
    (told,) = after.body["added"]
    assert (told["entity"], told["since"]) == (BROKEN, before.body["added"][0]["since"])
    assert after.body["removed"] == []  # what comes replaces, as a reader keeps one an entity
    published = exclusions_of(house.server)
    assert published["epoch"] == after.body["epoch"]
    assert [one["node_id"] for one in published["exclusions"]] == ["b"]
    assert house.hosts() == house.hosts("slurm") == ["b"]
    assert house.usable() == {"a": "yes", "b": "no", "c": "yes"}
    assert (house.live("a"), house.live("b")) == ([], [(BROKEN, "in_force")])
    (incident,) = get(house.server, "/v1/incidents", node="b")["items"]
    assert incident["entity"] == BROKEN
    (decision,) = get(house.server, "/v1/decisions", node="b")["items"]
    moves = get(house.server, f"/v1/decisions/{decision['id']}")["moves"]
    assert moves[-1]["reason"] == "the GPU was moved from node a to node b"


def test_caps_count_the_new_node_and_the_same_fault_there_is_the_same_incident(
    house: House,
) -> None:
    house.nodes["a"].events(xid_event(79, SLOT))
    wait_until(lambda: house.hosts() == ["a"], "excluded")
    house.swap()
    wait_until(lambda: house.hosts() == ["b"], "moved")
    house.nodes["b"].events(xid_event(79, SLOT))  # again, told by its new node
    house.nodes["b"].events(xid_event(79, OTHER_SLOT))
    wait_until(lambda: len(house.live("b")) == 2, "b is out already: it costs nothing more")
    assert set(house.phase_on("b")) == {"in_force"}
    house.nodes["a"].events(xid_event(79, OTHER_SLOT))
    wait_until(lambda: house.phase_on("a") == ["held_back"], "a would be a second node")
    about = [one for one in get(house.server, "/v1/incidents")["items"] if one["entity"] == BROKEN]
    assert [(one["node_id"], one["evidence"][0]["count"]) for one in about] == [("b", 2)]
    assert house.server.figure("gpuwarden_judge_refused_total") == 0


def test_a_move_that_was_not_judged_yet_is_told_after_a_restart(tmp_path: Path) -> None:
    """The claim of a node to a GPU of one that fell silent is granted without any event."""
    settings = quick_settings(tmp_path, dwell_s=600.0, silent_after_s=1.0)
    with running_server(settings) as server:
        # Three intervals are the least patience with a node, whatever the setting.
        nodes = {
            name: Feeder(server, server.mint("agent", name), name, interval_s=0.3) for name in "ab"
        }
        house = House(server, nodes)
        nodes["a"].introduce([make_gpu(0, "a")])
        nodes["b"].introduce([make_gpu(0, "b")])
        nodes["a"].events(xid_event(79, SLOT))
        wait_until(lambda: house.hosts() == ["a"], "excluded")
        moved = [make_gpu(0, "b", gpu_uuid=BROKEN)]
        house.has("b", moved)  # before `a` is silent: refused, and remembered

        def granted() -> bool:
            nodes["b"].events()
            return house.hosts() == ["b"]

        wait_until(granted, "granted to b")
        assert [gpu["usable"] for gpu in get(server, "/v1/nodes/b")["gpus"]] == ["no"]
        for node in nodes.values():
            node.close()
    with running_server(settings) as server:
        assert [one["node_id"] for one in exclusions_of(server)["exclusions"]] == ["b"]


def test_another_slot_of_the_same_node_is_told_too(house: House) -> None:
    with reading_feed(house.server) as feed:
        house.nodes["a"].events(xid_event(79, SLOT))
        feed.wait_added(BROKEN)
        house.has("a", [make_gpu(1, "a", gpu_uuid=BROKEN), make_gpu(0, "a", gpu_uuid="GPU-a-1")])
        (told,) = wait_told(feed, pci_bus_id=OTHER_SLOT).body["added"]
    assert (told["node_id"], told["gpu_index"]) == ("a", 1)
    assert exclusions_of(house.server)["exclusions"][0]["pci_bus_id"] == OTHER_SLOT


def test_a_watching_launcher_learns_that_its_node_is_out_now(house: House) -> None:
    house.nodes["a"].events(xid_event(79, SLOT))
    wait_until(lambda: house.hosts() == ["a"], "excluded")
    seen: list[FeedState] = []
    key = house.server.mint("runtime")
    client = Client(RuntimeSettings(url=house.server.url, key=key))
    with ExclusionWatch(client, seen.append, print):
        wait_for(lambda: seen, what="the first set")
        house.swap()
        wait_for(lambda: _nodes_of(seen[-1]) == ["b"], what="the moved GPU")
    client.close()
    assert _nodes_of(seen[0]) == ["a"]


def wait_told(feed: FeedReader, **place: Any) -> Told:
    """The first change that tells an exclusion in this place."""

    def find() -> Told | None:
        return next(
            (
                one
                for one in feed.changes()
                if any(place.items() <= added.items() for added in one.body["added"])
            ),
            None,
        )

    return wait_for(find, what=f"a change that tells {place}")


def _nodes_of(state: FeedState) -> list[str]:
    return [one.node_id for one in state.exclusions.values()]
