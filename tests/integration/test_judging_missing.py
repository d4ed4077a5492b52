"""GPUs that are missed though no agent misses them, over real HTTP and over restarts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import pack_table
from gpuwarden_wire.events import EventKind, GpuIdentity, Inventory
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)

COUNTS = ("node_gpus_visible", "node_gpus_on_pci", "node_gpus_expected", "node_uptime_seconds")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path_factory.mktemp("missing"))) as running:
        yield running


def introduced(server: Running, name: str) -> tuple[Feeder, list[GpuIdentity]]:
    feeder = Feeder(server, server.mint("agent", name), name, interval_s=0.1)
    gpus = [make_gpu(number, name) for number in range(8)]
    feeder.introduce(gpus)
    return feeder, gpus


def boot(node: Feeder, number: int, gpus: list[GpuIdentity], **inventory: Any) -> None:
    """A boot long enough ago, after which the agent knows of nothing but what it sees."""
    node.boot_id = f"boot-{number}-of-{node.node_id}"
    told = time.time() - 4000
    begun = make_event(kind=EventKind.NODE_BOOT, attributes={"booted_at": told})
    content = Inventory(gpus=tuple(gpus), **({"gpus_expected": len(gpus)} | inventory))
    has = make_event(kind=EventKind.INVENTORY, inventory=content)
    node.events(begun, has)


def count(node: Feeder, gpus: list[GpuIdentity]) -> None:
    """Two polls in a row."""
    for _ in range(2):
        at = time.time()
        schema = schema_for(EntityKind.NODE, COUNTS)
        counts = pack_table(schema, at, {"": [float(len(gpus))] * 3 + [4000.0]})
        table, of_gpus = gpu_table({g.gpu_uuid: [1.0] for g in gpus}, at, ("gpu_present",))
        node.telemetry([counts, table], [schema, of_gpus])


def excluded_of(server: Running, node: Feeder) -> list[str]:
    return [
        one["entity"]
        for one in exclusions_of(server)["exclusions"]
        if one["node_id"] == node.node_id
    ]


def view(server: Running, node: Feeder) -> dict[str, Any]:
    found: dict[str, Any] = get(server, f"/v1/nodes/{node.node_id}")
    return found


def test_a_gpu_that_does_not_come_up_is_missed_by_the_server_until_it_answers(
    server: Running,
) -> None:
    node, gpus = introduced(server, "seven-of-eight")
    rest = gpus[:3] + gpus[4:]
    boot(node, 2, rest)
    count(node, rest)
    wait_until(lambda: excluded_of(server, node) == [gpus[3].gpu_uuid], "the missing GPU is out")
    seen = view(server, node)
    assert (seen["gpus_visible"], seen["gpus_expected"]) == (7, 8)
    assert [gpu["usable"] for gpu in seen["gpus"]].count("yes") == 7
    boot(node, 3, gpus)
    count(node, gpus)
    wait_until(lambda: excluded_of(server, node) == [], "it answers again")
    node.close()


def test_what_another_node_has_is_not_missed(server: Running) -> None:
    giver, gpus = introduced(server, "giver")
    taker = Feeder(server, server.mint("agent", "taker"), "taker", interval_s=0.1)
    rest = gpus[1:]
    boot(giver, 2, rest)
    taker.introduce([gpus[0]])
    count(giver, rest)
    count(taker, gpus[:1])
    wait_sweeps(server, 8)
    assert excluded_of(server, giver) == []
    assert view(server, giver)["gpus_expected"] == 7
    giver.close()
    taker.close()


def test_an_operators_number_holds_against_what_the_server_remembers(server: Running) -> None:
    node, gpus = introduced(server, "set-to-seven")
    rest = gpus[1:]
    boot(node, 2, rest, gpus_expected=7, gpus_expected_set=True)
    count(node, rest)
    wait_sweeps(server, 8)
    assert excluded_of(server, node) == []
    assert view(server, node)["gpus_expected"] == 7
    node.close()


def test_a_repair_that_a_check_ends_settles_that_it_was_taken_out(server: Running) -> None:
    node, gpus = introduced(server, "taken-out")
    rest, out = gpus[:7], gpus[7].gpu_uuid
    boot(node, 2, rest)
    count(node, rest)
    wait_until(lambda: excluded_of(server, node) == [out], "out")
    begun = server.admin.post(f"/v1/gpus/{out}/repair", json={"reason": "board sent back"})
    begun.raise_for_status()
    node.events(make_event(kind=EventKind.CHECK_PASSED, text="dcgm r3"))
    wait_until(lambda: excluded_of(server, node) == [], "repaired")
    count(node, rest)
    wait_sweeps(server, 8)
    assert excluded_of(server, node) == []
    assert view(server, node)["gpus_expected"] == 7
    node.close()


def test_the_memory_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as first:
        giver, gpus = introduced(first, "giver")
        taker = Feeder(first, first.mint("agent", "taker"), "taker", interval_s=0.1)
        boot(giver, 2, gpus[1:])
        taker.introduce(gpus[:1])
        node, own = introduced(first, "node")
        for feeder in (giver, taker, node):
            feeder.close()
    with running_server(settings) as second:
        for feeder in (giver, node):
            feeder.server, feeder.client = second, second.admin
        boot(node, 2, own[1:])
        count(node, own[1:])
        count(giver, gpus[1:])
        wait_until(lambda: excluded_of(second, node) == [own[0].gpu_uuid], "still missed")
        wait_sweeps(second, 5)
        assert excluded_of(second, giver) == []
