"""A node that is called something else: all that is known of it goes along, and nothing doubles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuwarden_server.config import Settings
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import (
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import (
    GPU_METRICS,
    Feeder,
    Running,
    ServerProcess,
    gpu_table,
    make_client,
    make_event,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)
from tests.builders.stores import query
from tests.fakes.clock import MovedClock

BOTH_STORES = True
OLD, NEW = "gpu-01", "rack3-gpu-04"
GPU, OTHER_GPU = f"GPU-{OLD}-0", f"GPU-{OLD}-1"
SLOT, OTHER_SLOT = "0000:10:00.0", "0000:11:00.0"


@dataclass
class House:
    """A node with a broken GPU and a dead disk, beside one that is well."""

    server: Running
    agent: Feeder
    other: Feeder

    def rename(self, old: str = OLD, new: str = NEW) -> httpx.Response:
        body = {"to": new, "reason": "new scheme"}
        return self.server.admin.post(f"/v1/nodes/{old}/rename", json=body)

    def measure(self, watts: float, name: str = OLD, at: float | None = None) -> None:
        rows = {GPU: [40.0, watts, 1000.0 + watts]}
        table, schema = gpu_table(rows, at)
        self.agent.telemetry([table], [schema], node_id=name)

    def watts(self, **query: Any) -> set[float]:
        asked = {"entity_kind": "gpu", "entity": GPU, "metric": "gpu_power_watts"}
        found = get(self.server, "/v1/history", **asked, resolution="readings", **query)
        return {one for series in found["series"] for one in series["value"] if one is not None}

    def audit(self) -> list[tuple[str, str]]:
        items = get(self.server, "/v1/audit", limit=1000)["items"]
        return [(one["action"], one["target"]) for one in items]


def settings_in(folder: Path) -> Settings:
    return quick_settings(folder, max_nodes=2, dwell_s=600.0, history_readings="all")


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with running_server(settings_in(tmp_path)) as server:
        nodes = [Feeder(server, server.mint("agent", name), name) for name in (OLD, "gpu-02")]
        for node in nodes:
            node.introduce([make_gpu(number, node.node_id) for number in range(2)], disks=("sda",))
        yield House(server, *nodes)
        for node in nodes:
            node.close()


def break_gpu(house: House) -> None:
    house.agent.events(xid_event(79, SLOT))
    wait_until(lambda: exclusions_of(house.server)["exclusions"], "excluded")


def end_of_job(server: Running, job: str) -> str:
    end = {"job": job, "state": "FAILED", "nodes": [OLD]}
    answer = server.admin.post("/v1/events", json={"job_ends": [end]})
    return str(answer.json()["items"][0]["outcome"])


def hosts(server: Running) -> str:
    return server.admin.get("/v1/exclusions", params={"format": "hosts"}).text


@pytest.mark.postgres
def test_everything_goes_by_the_new_name_and_the_feed_moves_once(house: House) -> None:
    put = {"nodes": [{"node_id": OLD, "rack": "r3", "gpus_expected": 2}]}
    house.server.admin.put("/v1/inventory", json=put).raise_for_status()
    listed = rf"node=~gpu\-00|{re.escape(OLD)}"
    silence = {"matchers": [f"node={OLD}", listed], "duration_s": 600, "reason": "known"}
    house.server.admin.post("/v1/silences", json=silence).raise_for_status()
    house.measure(301.0)
    break_gpu(house)
    before = exclusions_of(house.server)
    with reading_feed(house.server) as feed:
        answer = house.rename()
        assert (answer.status_code, answer.json()) == (200, {"node_id": NEW, "former": [OLD]})
        wait_until(feed.changes, "the feed tells")
        (change,) = feed.changes()
    after = exclusions_of(house.server)
    assert after["epoch"] == before["epoch"] + 1
    assert [one["node_id"] for one in change.body["added"]] == [NEW]
    assert [one["decision_id"] for one in after["exclusions"]] == [
        one["decision_id"] for one in before["exclusions"]
    ]
    assert hosts(house.server) == f"{NEW}\n"
    (incident,) = get(house.server, "/v1/incidents", node=NEW)["items"]
    assert (incident["node_id"], incident["entity"]) == (NEW, GPU)
    assert get(house.server, "/v1/incidents", node=OLD)["items"] == []
    assert {one["node_id"] for one in get(house.server, "/v1/events", node=NEW)["items"]} == {NEW}
    shown = get(house.server, f"/v1/nodes/{NEW}")
    assert (shown["rack"], shown["gpus_visible"], shown["open_incidents"]) == ("r3", 2, 1)
    assert house.server.admin.get(f"/v1/nodes/{OLD}").status_code == 404
    said = get(house.server, "/v1/verdicts")["verdicts"]
    verdicts = {one["node_id"]: one["node"]["usable"] for one in said}
    assert verdicts == {NEW: "no", "gpu-02": "yes"}
    assert get(house.server, "/v1/silences")["items"][0]["matchers"] == [
        f"node={NEW}",
        rf"node=~gpu\-00|{re.escape(NEW)}",
    ]
    assert ("rename_node", f"node:{NEW}") in house.audit()
    assert house.watts() == {301.0}


def test_asked_for_again_it_changes_nothing(house: House) -> None:
    house.rename().raise_for_status()
    told = house.audit()
    assert house.rename().json() == {"node_id": NEW, "former": [OLD]}
    assert house.audit() == told


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        (OLD, "gpu-02", "node_known", "known already"),
        (OLD, OLD, "node_known", "its name already"),
        ("gpu-99", NEW, "not_found", "gpu-99"),
        (OLD, "no/name", "invalid_value", "to"),
    ],
)
def test_a_name_that_does_not_do_is_refused(
    house: House, old: str, new: str, code: str, words: str
) -> None:
    answer = house.rename(old, new).json()
    assert answer["code"] == code
    assert words in answer["detail"]
    assert answer["mend"]


def test_the_agent_goes_on_by_either_name_and_no_other_machine_by_the_old_one(
    house: House,
) -> None:
    house.measure(301.0)
    waiting = house.agent.batch(Stream.EVENTS, events=(xid_event(79, SLOT),))
    house.rename().raise_for_status()
    house.agent.send(waiting)  # sealed before the change of name
    assert house.agent.send(waiting).replayed
    house.measure(302.0)
    house.measure(303.0, NEW)
    wait_until(lambda: hosts(house.server) == f"{NEW}\n", "excluded by the new name")
    wait_until(lambda: house.watts() == {301.0, 302.0, 303.0}, "all that was measured")
    assert [n["node_id"] for n in get(house.server, "/v1/nodes")["items"]] == ["gpu-02", NEW]
    with_admin = Feeder(house.server, house.server.mint("agent", NEW), OLD)
    refused = with_admin.post(with_admin.batch(Stream.EVENTS, events=(with_admin.boot(),)))
    assert (refused.status_code, refused.json()["code"]) == (403, "node_renamed")
    assert NEW in refused.json()["detail"]
    with_admin.close()


def test_another_machine_may_have_the_old_name_once_it_is_made_known(house: House) -> None:
    house.measure(301.0)
    house.rename().raise_for_status()
    house.server.admin.post(
        "/v1/nodes", json={"node_id": OLD, "reason": "a new machine"}
    ).raise_for_status()
    young = Feeder(house.server, house.server.mint("agent", OLD), OLD)
    young.introduce([make_gpu(7, "young")])
    rows = {"GPU-young-7": [30.0, 99.0, 1.0]}
    table, schema = gpu_table(rows)
    young.telemetry([table], [schema])
    young.close()
    assert get(house.server, f"/v1/nodes/{OLD}")["gpus_visible"] == 1
    asked = {"entity_kind": "gpu", "metric": "gpu_power_watts", "resolution": "readings"}

    def of(node: str) -> set[float]:
        found = get(house.server, "/v1/history", **asked, node=node)
        return {one for series in found["series"] for one in series["value"] if one is not None}

    wait_until(lambda: of(OLD) == {99.0}, "its own readings")
    assert of(NEW) == {301.0}


def test_devices_of_a_node_are_renamed_with_it(house: House) -> None:
    failed = make_event(
        family="storage",
        entity_kind=EntityKind.DISK,
        entity="sda",
        text="nvme0: I/O error, dev sda",
        severity="critical",
    )
    house.agent.events(failed)
    house.rename().raise_for_status()
    entities = {one["entity"] for one in get(house.server, "/v1/events", node=NEW)["items"]}
    assert f"{NEW}/sda" in entities
    assert not [one for one in entities if one.startswith(OLD)]


@pytest.mark.postgres
def test_a_restart_finds_the_node_by_its_new_name_alone(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with running_server(settings) as server:
        agent = Feeder(server, server.mint("agent", OLD), OLD)
        house = House(server, agent, agent)
        agent.introduce([make_gpu(number, OLD) for number in range(2)])
        house.measure(301.0)
        break_gpu(house)
        assert end_of_job(server, "slurm:1") == "stored"
        house.rename().raise_for_status()
        assert end_of_job(server, "slurm:2") == "stored"  # Slurm may know it by the old name yet
        house.measure(302.0)
        agent.close()
    told = query(settings.state_folder, "SELECT CAST(nodes AS TEXT) FROM job_ends")
    assert [json.loads(row[0]) for row in told] == [[NEW], [NEW]]
    with running_server(settings) as server:
        agent.server, agent.client = server, Feeder(server, agent.key, OLD).client
        house = House(server, agent, agent)
        house.measure(303.0)
        wait_sweeps(server, 3)
        assert [n["node_id"] for n in get(server, "/v1/nodes")["items"]] == [NEW]
        assert hosts(server) == f"{NEW}\n"
        assert [one["node_id"] for one in get(server, "/v1/incidents")["items"]] == [NEW]
        wait_until(lambda: house.watts() == {301.0, 302.0, 303.0}, "all that was measured")
        agent.client.close()


def test_it_is_renamed_while_it_sends_without_a_batch_lost_or_told_twice(house: House) -> None:
    names = [OLD, *(f"name-{number}" for number in range(5))]
    sent = 0
    for old, new in pairwise(names):
        for _ in range(5):
            sent += 1
            house.agent.events(make_event(f"kmsg:turn-{sent}"))
        house.rename(old, new).raise_for_status()
    items = get(house.server, "/v1/events", node=names[-1], limit=1000)["items"]
    told = [one["id"] for one in items if one["id"].startswith("kmsg:turn")]
    assert told == [f"kmsg:turn-{number}" for number in range(1, sent + 1)]
    assert house.rename(names[-1], OLD).json()["former"] == [*names]
    assert get(house.server, f"/v1/nodes/{OLD}")["usable"] == "yes"


def test_roll_ups_join_over_the_change_of_name(tmp_path: Path) -> None:
    clock = MovedClock()
    with running_server(make_settings(tmp_path), clock) as server:
        agent = Feeder(server, server.mint("agent", OLD), OLD)
        agent.introduce([make_gpu(0, OLD)])
        begin = (clock.now() // 1800 - 1) * 1800
        for minute, name in enumerate((OLD, OLD, NEW), start=1):
            if name == NEW:
                House(server, agent, agent).rename().raise_for_status()
            rows = {GPU: [40.0 + minute, 300.0, 1000.0 * minute]}
            table, schema = gpu_table(rows, begin + 60 * minute + 5)
            agent.telemetry([table], [schema], node_id=name)
            clock.ahead += 80.0
            wait_until(partial(_has_sealed, server, minute), "the minute is sealed", 30.0)

        for resolution in ("minutes", "quarters"):
            asked = {"entity_kind": "gpu", "entity": GPU, "step": 900, "resolution": resolution}
            asked |= {"metric": GPU_METRICS, "from": begin, "to": begin + 900}
            found = get(server, "/v1/history", **asked)["series"]
            heat, _, energy = sorted(found, key=lambda one: GPU_METRICS.index(one["metric"]))
            assert (energy["node_id"], energy["increase"]) == (NEW, [2000.0]), resolution
            assert (heat["min"], heat["mean"], heat["max"]) == ([41.0], [42.0], [43.0])
        agent.close()


def _has_sealed(server: Running, minutes: int) -> bool:
    return server.figure("gpuwarden_history_minutes_total") >= minutes


@pytest.mark.long
def test_a_server_killed_right_after_it_knows_the_node_by_its_new_name_alone(
    tmp_path: Path,
) -> None:
    process = ServerProcess(quick_settings(tmp_path, checkpoint_pass_s=0.5))
    try:
        server = process.start()
        agent = Feeder(server, server.mint("agent", OLD), OLD)
        agent.introduce([make_gpu(0, OLD)])
        house = House(server, agent, agent)
        wait_until(lambda: _durable(house) > 0, "a checkpoint by the old name")
        house.rename().raise_for_status()
        process.kill()
        agent.client.close()
        server.admin.close()
        server = process.start()
        agent.server, agent.client = server, make_client(server.url, agent.key)
        assert [n["node_id"] for n in get(server, "/v1/nodes")["items"]] == [NEW]
        readings = get(server, f"/v1/gpus/{GPU}")["readings"]
        assert readings["gpu_power_watts"] == 301.0  # of the checkpoint by the old name
        agent.events(xid_event(79, SLOT))
        wait_until(lambda: hosts(server) == f"{NEW}\n", "excluded by the new name")
        agent.client.close()
        server.admin.close()
    finally:
        process.close()


def _durable(house: House) -> int:
    table, schema = gpu_table({GPU: [40.0, 301.0, 1.0]})
    return house.agent.telemetry([table], [schema]).durable_seq
