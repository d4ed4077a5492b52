"""From an event or a reading to an exclusion, over real HTTP: what must happen, and what never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_verdict.policy.document import Mode
from gpuwarden_wire.batches import Stream
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.feed import (
    digest_of,
    exclusions_of,
    get,
    quick_settings,
    reading_feed,
    sweeps,
    wait_sweeps,
    xid_event,
)
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)
from tests.builders.stores import StoreKind
from tests.fakes.clock import StillClock

BOTH_STORES = True

SLOT = "0000:{:02x}:00.0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("act"))) as running:
        yield running


@pytest.fixture
def node(server: Running, request: pytest.FixtureRequest) -> Iterator[Feeder]:
    name = (
        request.node.name.replace("[", "-")
        .rstrip("]")
        .replace("[", "-")
        .rstrip("]")
        .replace("test_", "")[:60]
    )
    feeder = introduced(server, name)
    yield feeder
    feeder.close()


def introduced(server: Running, name: str, gpus: int = 8) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(number, name) for number in range(gpus)])
    return feeder


def slot(number: int) -> str:
    return SLOT.format(0x10 + number)


def gpu_of(node: Feeder, number: int) -> str:
    return f"GPU-{node.node_id}-{number}"


def why(server: Running, gpu: str) -> dict[str, Any]:
    answer: dict[str, Any] = get(server, f"/v1/gpus/{gpu}/why")
    return answer


def state_of(server: Running, gpu: str) -> object:
    return get(server, f"/v1/gpus/{gpu}")["state"]


@pytest.mark.postgres
def test_a_lost_gpu_is_on_the_feed_at_once_and_in_every_form(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 3)
    with reading_feed(server) as feed:
        node.events(xid_event(79, slot(3)))
        told = feed.wait_added(gpu)
    published = exclusions_of(server)
    assert (published["epoch"], published["digest"]) == (told.body["epoch"], told.body["digest"])
    assert published["digest"] == digest_of(published["exclusions"])
    assert published["count"] == len(published["exclusions"])
    entry = next(one for one in published["exclusions"] if one["entity"] == gpu)
    assert (entry["node_id"], entry["pci_bus_id"], entry["rung"]) == (
        node.node_id,
        slot(3),
        "exclude",
    )
    assert "79" in entry["reason"]
    hosts = server.admin.get("/v1/exclusions", params={"format": "hosts"})
    assert node.node_id in hosts.text.splitlines()
    slurm = server.admin.get("/v1/exclusions", params={"format": "slurm"})
    assert node.node_id in slurm.text.strip().split(",")
    whole = server.admin.get("/v1/exclusions", params={"format": "hosts", "scope": "node"})
    assert node.node_id not in whole.text.splitlines()
    verdict = get(server, "/v1/verdicts", node=node.node_id)["verdicts"][0]
    assert verdict["node"]["usable"] == "no"
    assert [g["usable"] for g in verdict["gpus"]].count("no") == 1


def test_the_acknowledgement_after_it_carries_the_verdict(server: Running, node: Feeder) -> None:
    node.events(xid_event(79, slot(0)))
    wait_until(lambda: state_of(server, gpu_of(node, 0)) == "excluded", "excluded")
    verdict = node.events(make_event(text="an ordinary line")).verdict
    assert verdict is not None
    assert verdict.node.usable == "no"
    assert verdict.epoch == exclusions_of(server)["epoch"]


def test_a_burst_that_a_program_can_cause_excludes_nobody(server: Running, node: Feeder) -> None:
    node.events(*(xid_event(31, slot(n)) for n in range(8)), xid_event(43, slot(2)))
    with reading_feed(server) as feed:
        wait_sweeps(server, 8)  # settled twice over
    assert node.node_id not in {e["node_id"] for one in feed.changes() for e in one.body["added"]}
    published = exclusions_of(server)
    named = {one["node_id"] for one in published["exclusions"] + published["would_exclude"]}
    assert node.node_id not in named
    assert {state_of(server, gpu_of(node, n)) for n in range(8)} <= {"healthy", "suspect"}


@pytest.mark.postgres
def test_the_same_event_again_is_one_incident_and_one_decision(
    server: Running, node: Feeder
) -> None:
    event = xid_event(79, slot(1))
    node.events(event)
    node.events(event, xid_event(79, slot(1)))
    wait_until(lambda: state_of(server, gpu_of(node, 1)) == "excluded", "excluded")
    wait_sweeps(server)
    assert len(get(server, "/v1/incidents", node=node.node_id)["items"]) == 1
    assert len(get(server, "/v1/decisions", node=node.node_id)["items"]) == 1


def test_a_lone_79_excludes_at_once_though_more_events_follow(
    server: Running, node: Feeder
) -> None:
    with reading_feed(server) as feed:
        node.events(xid_event(79, slot(4)), xid_event(48, slot(3)), more_events=True)
        feed.wait_added(gpu_of(node, 4))
        wait_sweeps(server, 8)  # the 48 would have settled twice over
        assert gpu_of(node, 3) not in feed.added()
        node.events(make_event(text="the end"))
        feed.wait_added(gpu_of(node, 3))


def test_while_more_events_follow_a_late_one_nothing_is_decided(
    server: Running, node: Feeder
) -> None:
    gpu = gpu_of(node, 5)
    node.events(xid_event(79, slot(5)), more_events=True, late=True)
    wait_until(lambda: get(server, "/v1/incidents", node=node.node_id)["items"], "an incident")
    wait_sweeps(server)
    assert state_of(server, gpu) == "healthy"
    node.events(make_event(text="the end"))
    wait_until(lambda: state_of(server, gpu) == "excluded", "excluded at the end state")


def test_a_held_node_is_judged_when_a_batch_without_events_ends_the_hold(
    server: Running, node: Feeder
) -> None:
    node.events(xid_event(79, slot(6)), more_events=True, late=True)
    wait_sweeps(server, 2)
    assert state_of(server, gpu_of(node, 6)) == "healthy"
    node.events()
    wait_until(lambda: state_of(server, gpu_of(node, 6)) == "excluded", "excluded by the sweep")


def test_a_reading_excludes_on_the_sweep(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 2)
    rows = {gpu_of(node, n): (1.0 if n == 2 else 0.0,) for n in range(8)}
    with reading_feed(server) as feed:
        for _ in range(3):
            table, schema = gpu_table(rows, metrics=("gpu_row_remap_failure",))
            node.telemetry([table], [schema])
        feed.wait_added(gpu)
    case = why(server, gpu)
    assert case["verdict"]["usable"] == "no"
    reading = get(server, f"/v1/gpus/{gpu}")["readings"]["gpu_row_remap_failure"]
    assert reading == 1.0


@pytest.mark.parametrize("way", ["lane", "general"])
def test_a_value_that_announces_a_fault_does_not_wait_for_the_next_sweep(
    tmp_path: Path, way: str
) -> None:
    clock = StillClock()
    with running_server(quick_settings(tmp_path, sweep_interval_s=0.2), clock) as server:
        node = Feeder(server, server.mint("agent", "n"), "n")
        node.introduce([make_gpu(0, "n")])
        clock.ahead += 0.2
        wait_until(lambda: sweeps(server) == 1, "the first sweep")

        def tell(failed: float) -> None:
            clock.ahead += 0.06  # the next sweep is due after 0.2 s: not in this test
            row = {"GPU-n-0": (failed, 50.0)}
            metrics = ("gpu_row_remap_failure", "gpu_temperature_celsius")
            table, schema = gpu_table(row, clock.now(), metrics)
            known = (schema,) if way == "general" or not node.seqs[Stream.TELEMETRY] else ()
            node.telemetry([table], known)

        tell(0.0)
        tell(0.0)
        assert sweeps(server) == 1
        tell(1.0)
        wait_until(lambda: sweeps(server) == 2, "the sweep that was asked for")
        assert get(server, "/v1/nodes/n")["usable"] == "no"
        node.close()


def test_everywhere_the_reason_leads_with_what_decided(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 2)
    with reading_feed(server) as feed:
        node.events(xid_event(63, slot(2)))  # NVIDIA's own action for it is to ignore it
        wait_until(lambda: get(server, "/v1/incidents", node=node.node_id)["items"], "a sign")
        table, schema = gpu_table({gpu: (1.0,)}, metrics=("gpu_row_remap_failure",))
        node.telemetry([table], [schema])
        told = feed.wait_added(gpu)
    wait_until(lambda: why(server, gpu)["decisions"], "decided")
    case = why(server, gpu)
    on_feed = next(one for one in told.body["added"] if one["entity"] == gpu)
    in_force = next(one for one in case["decisions"] if one["phase"] == "in_force")
    (listed,) = get(server, "/v1/incidents", node=node.node_id)["items"]
    for said in (on_feed["reason"], in_force["reasons"][0], case["verdict"]["why"], listed["why"]):
        assert said.startswith("row remapping failed on"), said
        assert "; first sign: XID 63" in said


def test_own_trouble_is_shown_and_accuses_nobody(server: Running, node: Feeder) -> None:
    trouble = make_event(
        kind=EventKind.COLLECTOR_TROUBLE,
        text="nvml: child stopped",
        attributes={"source": "nvml", "reason": "child_stopped"},
    )
    node.events(trouble)
    path = f"/v1/nodes/{node.node_id}"
    wait_until(lambda: get(server, path)["trouble"], "trouble on the node")
    shown = get(server, path)
    assert (shown["trouble"][0]["source"], shown["trouble"][0]["reason"]) == (
        "nvml",
        "child_stopped",
    )
    assert (shown["usable"], shown["state"], shown["open_incidents"]) == ("yes", "healthy", 0)
    node.events(make_event(kind=EventKind.COLLECTOR_RECOVERED, attributes={"source": "nvml"}))
    wait_until(lambda: not get(server, path)["trouble"], "trouble gone")


def test_a_stuck_driver_is_at_most_suspect(server: Running, node: Feeder) -> None:
    stuck = make_event(
        kind=EventKind.DRIVER_STUCK,
        entity_kind=EntityKind.GPU,
        entity=gpu_of(node, 7),
        text="nvmlDeviceGetTemperature in flight for 31 s",
        attributes={"call": "nvmlDeviceGetTemperature", "in_flight_s": 31},
    )
    node.events(stuck)
    wait_until(lambda: get(server, "/v1/incidents", node=node.node_id)["items"], "an incident")
    wait_sweeps(server, 8)
    assert node.node_id not in {e["node_id"] for e in exclusions_of(server)["exclusions"]}


@pytest.mark.postgres
def test_a_repair_ends_with_a_passed_check_and_probation(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 0)
    with reading_feed(server) as feed:
        node.events(xid_event(79, slot(0)))
        feed.wait_added(gpu)
        begun = server.admin.post(f"/v1/gpus/{gpu}/repair", json={"reason": "swap the board"})
        assert begun.json()["state"] == "in_repair", begun.text
        wait_sweeps(server)
        assert state_of(server, gpu) == "in_repair"
        node.events(check(EventKind.CHECK_PASSED, gpu))
        feed.wait_removed(gpu)
        assert state_of(server, gpu) in ("probation", "healthy")
        wait_until(lambda: state_of(server, gpu) == "healthy", "healthy after the dwell")
    states = [move["after"] for move in why(server, gpu)["states"]]
    assert states == ["healthy", "probation", "in_repair", "excluded"]
    node.events(xid_event(79, slot(0), observed_at=1.0))
    wait_sweeps(server)
    assert state_of(server, gpu) == "healthy", "a fault from before the check is history"


def test_a_revoke_ends_the_repair_of_what_it_acquits(server: Running, node: Feeder) -> None:
    gpu = gpu_of(node, 0)
    node.events(xid_event(79, slot(0)))
    wait_until(lambda: state_of(server, gpu) == "excluded", "excluded")
    repair = f"/v1/gpus/{gpu}/repair"
    server.admin.post(repair, json={"reason": "swap the board"}).raise_for_status()
    wait_sweeps(server)
    assert state_of(server, gpu) == "in_repair"
    (decision,) = [e for e in exclusions_of(server)["exclusions"] if e["gpu_uuid"] == gpu]
    revoke = f"/v1/decisions/{decision['decision_id']}/revoke"
    server.admin.post(revoke, json={"reason": "board was sound"}).raise_for_status()
    shown = get(server, f"/v1/gpus/{gpu}")
    assert (shown["state"], shown["usable"]) == ("healthy", "yes")
    node.events(xid_event(95, slot(0)))
    # It is excluded first and, at the next look, asked to be drained.
    wait_until(lambda: state_of(server, gpu) == "draining", "out for another fault")
    server.admin.post(repair, json={"reason": "swap it after all"}).raise_for_status()


def check(kind: EventKind, gpu: str) -> Event:
    return make_event(kind=kind, entity_kind=EntityKind.GPU, entity=gpu, text="dcgm r3")


def test_repair_needs_an_exclusion(server: Running, node: Feeder) -> None:
    refused = server.admin.post(
        f"/v1/gpus/{gpu_of(node, 0)}/repair", json={"reason": "just in case"}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "not_excluded")


def test_probation_re_excludes_on_the_first_new_symptom(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, dwell_s=600)) as server:
        node = introduced(server, "back")
        gpu = gpu_of(node, 0)
        node.events(xid_event(79, slot(0)))
        wait_until(lambda: state_of(server, gpu) == "excluded", "excluded")
        server.admin.post(f"/v1/gpus/{gpu}/repair", json={"reason": "swap"}).raise_for_status()
        node.events(check(EventKind.CHECK_PASSED, gpu))
        wait_until(lambda: state_of(server, gpu) == "probation", "probation")
        node.events(xid_event(79, slot(0)))
        wait_until(lambda: state_of(server, gpu) == "excluded", "excluded again")
        node.close()


def test_observe_mode_would_exclude_and_excludes_nobody(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, Mode.OBSERVE)) as server:
        node = introduced(server, "seen")
        node.events(xid_event(79, slot(0)))
        wait_until(lambda: exclusions_of(server)["would_exclude"], "would exclude")
        wait_sweeps(server)
        published = exclusions_of(server)
        assert (published["epoch"], published["count"], published["exclusions"]) == (0, 0, [])
        assert [one["entity"] for one in published["would_exclude"]] == [gpu_of(node, 0)]
        verdict = get(server, "/v1/verdicts")["verdicts"][0]
        gpu = verdict["gpus"][0]
        assert (verdict["node"]["usable"], gpu["usable"], gpu["would"]) == ("yes", "yes", "exclude")
        assert gpu["state"] == "suspect"
        node.close()


def test_the_cap_holds_back_and_lets_go_when_there_is_room(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, max_nodes=1)) as server:
        nodes = [introduced(server, f"capped-{n}") for n in range(3)]
        for node in nodes:
            node.events(xid_event(79, slot(0)))
            wait_until(
                lambda n=node: get(server, "/v1/decisions", node=n.node_id)["items"], "decided"
            )
        wait_sweeps(server)
        assert exclusions_of(server)["count"] == 1
        held = get(server, "/v1/decisions", phase="held_back")["items"]
        assert {decision["guard"] for decision in held} == {"cap_nodes"}
        assert len(held) == 2
        (first,) = get(server, "/v1/decisions", phase="in_force")["items"]
        server.admin.post(
            f"/v1/decisions/{first['id']}/revoke", json={"reason": "sound"}
        ).raise_for_status()
        wait_until(lambda: exclusions_of(server)["count"] == 1, "the next one has room")
        assert exclusions_of(server)["exclusions"][0]["node_id"] != first["node_id"]
        for node in nodes:
            node.close()


def test_a_silent_node_is_unknown_and_excluded_nowhere(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, silent_after_s=0.5)) as server:
        # Three intervals of a node's own cadence are the least patience with it.
        node = Feeder(server, server.mint("agent", "quiet"), "quiet", interval_s=0.1)
        path = "/v1/nodes/quiet"

        def is_usable() -> bool:
            node.introduce([make_gpu(0, "quiet")])  # it goes on speaking until that was seen
            return bool(get(server, path)["usable"] == "yes")

        wait_until(is_usable, "usable")
        wait_until(lambda: get(server, path)["silent"], "silent")
        wait_sweeps(server)
        shown = get(server, path)
        assert (shown["usable"], exclusions_of(server)["count"]) == ("unknown", 0)
        never = get(server, "/v1/verdicts", node="never-seen")["verdicts"][0]
        assert never["node"]["usable"] == "unknown"
        node.close()


def test_caps_know_nodes_that_came_since_the_last_sweep(tmp_path: Path) -> None:
    with running_server(quick_settings(tmp_path, sweep_interval_s=600.0)) as server:
        nodes = [introduced(server, f"early-{n}") for n in range(3)]
        for node in nodes:
            node.events(xid_event(79, slot(0)))
        wait_until(lambda: exclusions_of(server)["count"] == 3, "all three, without any sweep")
        for node in nodes:
            node.close()
