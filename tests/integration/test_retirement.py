"""Nodes that are gone for good: after an hour, or when a person says so; and their return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_gpu,
    running_server,
    wait_until,
)
from tests.fakes.clock import MovedClock

SLOT, OTHER_SLOT = "0000:10:00.0", "0000:11:00.0"
AWAY = ("b", "c")
ADMIN = "first admin"


@dataclass
class House:
    """Three nodes of two GPUs, and the server's clock."""

    server: Running
    clock: MovedClock
    nodes: dict[str, Feeder]

    def pass_by(self, seconds: float) -> None:
        """Time in which only node `a` sends; a sweep has seen who is silent then."""
        self.clock.ahead += seconds
        self.nodes["a"].events()
        wait_sweeps(self.server, 2)

    def decision(self, node: str) -> dict[str, Any]:
        items = get(self.server, "/v1/decisions", node=node, phase="live")["items"]
        wanted: dict[str, Any] = items[0] if items else {"phase": "none", "guard": ""}
        return wanted

    def wait_phase(self, node: str, phase: str, guard: str = "") -> None:
        def is_so() -> bool:
            found = self.decision(node)
            return (found["phase"], found["guard"]) == (phase, guard)

        wait_until(is_so, f"decision about {node} {phase} {guard}")

    def retire(self, node: str) -> httpx.Response:
        return self.server.admin.post(f"/v1/nodes/{node}/retire", json={"reason": "sold"})

    def seen(self, node: str) -> dict[str, Any]:
        found: dict[str, Any] = get(self.server, f"/v1/nodes/{node}")
        return found

    def audit(self) -> list[tuple[str, str, str, str]]:
        items = get(self.server, "/v1/audit", limit=1000)["items"]
        return [(one["action"], one["target"], one["author"], one["reason"]) for one in items]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path), clock) as server:
        nodes = {name: Feeder(server, server.mint("agent", name), name) for name in "abc"}
        for name, node in nodes.items():
            node.introduce([make_gpu(number, name) for number in range(2)])
        yield House(server, clock, nodes)
        for node in nodes.values():
            node.close()


def test_nodes_that_were_switched_off_stop_the_others_for_an_hour_at_most(house: House) -> None:
    house.pass_by(100)
    house.nodes["a"].events(xid_event(79, SLOT))
    house.wait_phase("a", "held_back", "breaker")
    house.pass_by(3400)
    house.wait_phase("a", "held_back", "breaker")
    house.pass_by(101)
    house.wait_phase("a", "in_force")
    assert all(house.seen(name)["silent"] for name in AWAY)  # shown as before


def test_a_retired_node_counts_nowhere_and_all_that_stood_against_it_ends(house: House) -> None:
    broken = "GPU-b-0"
    with reading_feed(house.server) as feed:
        house.nodes["b"].events(xid_event(79, SLOT))
        feed.wait_added(broken)
        assert house.retire("b").json()["code"] == "node_heard"  # it would be back, and in use
        house.pass_by(100)
        house.nodes["a"].events(xid_event(79, SLOT))
        house.wait_phase("a", "held_back", "breaker")
        for name in AWAY:
            assert house.retire(name).json()["state"] == "retired"
        feed.wait_removed(broken)
        feed.wait_added("GPU-a-0")  # the breaker is closed: one node, and it is heard of
    assert house.retire("b").json()["code"] == "already_retired"
    shown = house.seen("b")
    assert (shown["state"], shown["usable"], shown["silent"]) == ("retired", "unknown", False)
    assert {gpu["state"] for gpu in shown["gpus"]} == {"retired"}
    assert shown["open_incidents"] == 0
    fleet = get(house.server, "/v1/fleet")
    assert (fleet["nodes"], fleet["gpus"], fleet["silent_nodes"]) == (1, 2, 0)
    assert fleet["node_states"]["retired"] == 2
    told = house.audit()
    assert ("retire_node", "node:b", ADMIN, "sold") in told
    assert ("end_exclusion", f"gpu:{broken}", ADMIN, "node retired: sold") in told


def test_pins_and_leaves_of_a_retired_node_end_with_it(house: House) -> None:
    def ask(path: str, **body: Any) -> httpx.Response:
        return house.server.admin.post(path, json={"reason": "r"} | body)

    node = {"entity_kind": "node", "entity": "b"}
    ask("/v1/pins", **node, kind="exclude").raise_for_status()
    gpu = {"entity_kind": "gpu", "entity": "GPU-b-0"}
    ask("/v1/pins", **gpu, kind="exclude").raise_for_status()
    ask("/v1/leaves", nodes=["b"], at=house.clock.now() + 150).raise_for_status()
    house.pass_by(100)
    house.retire("b").raise_for_status()
    assert exclusions_of(house.server)["planned"] == []
    house.pass_by(100)
    assert exclusions_of(house.server)["exclusions"] == [], "also at the time of its leave"
    assert house.seen("b")["state"] == "retired"
    assert get(house.server, "/v1/pins")["items"] == []
    assert get(house.server, "/v1/silences", active="true")["items"] == []
    told = [(action, target) for action, target, *_ in house.audit()]
    assert {("end_pin", "node:b"), ("end_pin", "gpu:GPU-b-0"), ("end_leave", "node:b")} < set(told)
    for refused in (ask("/v1/leaves", nodes=["b"], at=0), ask("/v1/pins", **gpu, kind="allow")):
        assert (refused.status_code, refused.json()["code"]) == (409, "retired")


@pytest.mark.parametrize("how", ["telemetry", "fault"])
def test_a_retired_node_is_back_and_healthy_when_its_agent_sends(house: House, how: str) -> None:
    house.nodes["b"].events(xid_event(79, SLOT))
    house.wait_phase("b", "in_force")
    house.pass_by(100)
    house.retire("b").raise_for_status()
    house.clock.ahead += 1
    if how == "telemetry":
        table, schema = gpu_table({"GPU-b-0": [40.0, 300.0, 1.0]})
        house.nodes["b"].telemetry([table], [schema])
        wait_until(lambda: house.seen("b")["state"] == "healthy", "healthy again")
        assert {gpu["state"] for gpu in house.seen("b")["gpus"]} == {"healthy"}
    else:
        house.nodes["b"].events(xid_event(79, OTHER_SLOT))
        house.wait_phase("b", "in_force")
        (excluded,) = exclusions_of(house.server)["exclusions"]
        assert excluded["entity"] == "GPU-b-1"
    states = get(house.server, "/v1/nodes/b/why")["states"]
    assert [(one["before"], one["after"]) for one in states] == [
        ("retired", "healthy"),
        ("healthy", "retired"),
    ]
    back = ("return_node", "node:b", "gpuwarden", "its agent sends again")
    assert back in house.audit()


def test_a_retirement_outlives_a_restart(tmp_path: Path) -> None:
    settings, clock = quick_settings(tmp_path), MovedClock()
    with running_server(settings, clock) as server:
        node = Feeder(server, server.mint("agent", "b"), "b")
        node.introduce([make_gpu(0, "b")])
        clock.ahead += 100
        server.admin.post("/v1/nodes/b/retire", json={"reason": "sold"}).raise_for_status()
        node.close()
    with running_server(settings, clock) as server:
        assert get(server, "/v1/nodes/b")["state"] == "retired"
        assert get(server, "/v1/fleet")["nodes"] == 0


def test_a_gpu_that_moved_before_its_node_was_retired_stays_excluded(house: House) -> None:
    moved = make_gpu(0, "a", gpu_uuid="GPU-b-0")
    house.nodes["b"].events(xid_event(79, SLOT))
    house.wait_phase("b", "in_force")
    house.pass_by(100)
    house.nodes["a"].events(house.nodes["a"].inventory([moved, make_gpu(1, "a")]))
    house.retire("b").raise_for_status()
    (excluded,) = exclusions_of(house.server)["exclusions"]
    assert excluded["entity"] == "GPU-b-0"
