"""The inventory over real HTTP and the command: who stands where, and what goes by it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run
from gpuwarden_wire.batches import pack_table
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import get, wait_sweeps, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    make_gpu,
    make_settings,
    running_server,
    wait_until,
)

BOTH_STORES = True

POLICY = """
[defaults]
mode = "observe"
settle_s = 0.2
dwell_s = 0.3
[[pools]]
name = "training"
labels = { pool = "train*", rack = "r1" }
mode = "act"
[[pools]]
name = "old"
nodes = ["old-*"]
"""
FIXTURES = Path(__file__).parents[1] / "fixtures" / "inventory"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    file = folder / "policy.toml"
    file.write_text(POLICY)
    with running_server(make_settings(folder, policy_file=file, sweep_interval_s=0.1)) as running:
        yield running


def entry(node: str, **fields: Any) -> dict[str, Any]:
    return {"node_id": node, **fields}


def put(server: Running, *entries: dict[str, Any], **query: str) -> dict[str, Any]:
    answer = server.admin.put("/v1/inventory", json={"nodes": list(entries)}, params=query)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def placed(server: Running, node: str) -> dict[str, Any]:
    (found,) = get(server, "/v1/inventory", node=node)["items"]
    return dict(found)


def counts(told: dict[str, Any]) -> tuple[int, int, int]:
    return told["added"], told["changed"], told["removed"]


def introduced(server: Running, name: str, gpus: int = 1, **inventory: Any) -> Feeder:
    feeder = Feeder(server, server.mint("agent", name), name)
    feeder.introduce([make_gpu(number, name) for number in range(gpus)], **inventory)
    return feeder


def test_a_field_comes_from_the_first_source_that_has_it(server: Running) -> None:
    introduced(server, "n1", labels={"rack": "told", "leaf": "told", "kernel": "6.1"}).close()
    put(server, entry("n1", rack="k8s", pool="k8s", labels={"zone": "b"}), source="kubernetes")
    put(server, entry("n1", pool="slurm", gpus_expected=8), source="slurm")
    put(server, entry("n1", gpus_expected=4, mounts=["/scratch"]))
    found = placed(server, "n1")
    assert [found[name] for name in ("rack", "leaf", "pool", "gpus_expected")] == [
        *("k8s", "told", "slurm", 4),
    ]
    assert found["origin"] == {
        "rack": "kubernetes",
        "leaf": "agent",
        "pool": "slurm",
        "mounts": "file",
        "gpus_expected": "file",
    }
    assert found["labels"] == {"kernel": "6.1", "zone": "b"}
    node = get(server, "/v1/nodes/n1")
    assert (node["rack"], node["leaf"], node["mounts"]) == ("k8s", "told", ["/scratch"])


def test_a_dry_run_changes_nothing_and_a_change_is_audited(server: Running) -> None:
    assert counts(put(server, entry("a"), entry("b", rack="r1"))) == (2, 0, 0)
    wanted = [entry("b", rack="r2"), entry("c")]
    assert counts(put(server, *wanted, dry_run="true")) == (1, 1, 1)
    assert placed(server, "b")["rack"] == "r1"
    told = put(server, *wanted)
    assert counts(told) == (1, 1, 1)
    assert counts(put(server, *wanted)) == (0, 0, 0)
    changes = {one["node_id"]: one for one in told["changes"]}
    assert changes["a"]["after"] is None and changes["b"]["before"]["rack"] == "r1"
    items = get(server, "/v1/audit", limit=1000)["items"]
    audit = [one for one in items if one["action"] == "put_inventory"]
    assert len(audit) == 2 and audit[1]["target"] == "inventory:file"
    assert audit[1]["before"]["b"]["rack"] == "r1" and audit[1]["after"]["b"]["rack"] == "r2"
    twice = server.admin.put("/v1/inventory", json={"nodes": [entry("a"), entry("a")]})
    assert twice.status_code == 422 and "'a'" in twice.json()["detail"]


@pytest.mark.postgres
def test_it_outlasts_a_restart(folder: Path) -> None:
    settings = make_settings(folder)
    with running_server(settings) as first:
        put(first, entry("n1", rack="r1", labels={"owner": "ana"}, mounts=["/home"]))
    with running_server(settings) as second:
        found = placed(second, "n1")
        assert (found["rack"], found["labels"], found["mounts"]) == (
            *("r1", {"owner": "ana"}, ["/home"]),
        )
        assert not found["known"] and found["sources"] == ["file"]


def test_policy_pools_go_by_the_inventory_at_once(server: Running) -> None:
    feeder = introduced(server, "n1")
    introduced(server, "old-1").close()
    assert get(server, "/v1/nodes/n1")["pool"] == "default"
    put(server, entry("n1", rack="r1", pool="train-a"), entry("old-1", rack="r2"))
    assert get(server, "/v1/nodes/n1")["pool"] == "training"
    names = [one["node_id"] for one in get(server, "/v1/nodes", pool="training")["items"]]
    assert names == ["n1"]
    names = [one["node_id"] for one in get(server, "/v1/nodes", rack="r2")["items"]]
    assert names == ["old-1"] and get(server, "/v1/nodes/old-1")["pool"] == "old"
    feeder.events(xid_event(79, "0000:10:00.0"))  # the pool's mode is act
    wait_until(lambda: get(server, "/v1/exclusions")["count"] == 1, "the node's pool lets it act")
    feeder.close()


def test_the_expected_number_goes_before_what_was_seen(server: Running) -> None:
    feeder = introduced(server, "n1", gpus=2)
    schema = schema_for(EntityKind.NODE, ["node_gpus_visible", "node_gpus_expected"])
    for at in (0.0, 1.0):
        table = pack_table(schema, 1_700_000_000.0 + at, {"": [2.0, 2.0]})
        feeder.telemetry([table], [schema])
    wait_sweeps(server)
    assert get(server, "/v1/nodes/n1")["open_incidents"] == 0
    put(server, entry("n1", gpus_expected=8))
    assert get(server, "/v1/nodes/n1")["gpus_expected"] == 8
    wait_until(lambda: get(server, "/v1/nodes/n1")["open_incidents"] == 1, "six are missing")
    put(server, entry("n1", gpus_expected=2))
    wait_until(lambda: get(server, "/v1/nodes/n1")["open_incidents"] == 0, "none is missing")
    feeder.close()


def test_a_node_is_known_before_it_is_heard_of(server: Running) -> None:
    body = entry("new-1", rack="r9", reason="rack r9 arrives on Monday")
    made = server.admin.post("/v1/nodes", json=body)
    assert made.status_code == 201 and made.json()["known"]
    node = get(server, "/v1/nodes/new-1")
    assert (node["last_seen_at"], node["rack"]) == (None, "r9")
    assert server.admin.post("/v1/nodes", json=body).json()["code"] == "node_known"
    items = get(server, "/v1/audit", limit=1000)["items"]
    assert "add_node" in [one["action"] for one in items]
    introduced(server, "new-1").close()
    assert get(server, "/v1/nodes/new-1")["last_seen_at"] is not None


def test_the_command_shows_asks_and_takes_over(
    server: Running,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    key = server.admin.headers["Authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("GPUWARDEN_KEY", key)
    file = folder / "fleet.csv"
    file.write_text("node,rack,gpus\nn1,r1,8\nn2,r1,8\n")
    assert run(["inventory", "import", str(file), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "n1" in shown and "2 new, 0 changed, 0 no longer named" in shown
    assert get(server, "/v1/inventory")["items"] == []
    assert run(["inventory", "import", str(file), "--yes"]) == 0
    file.write_text("node,rack,gpus\nn1,r2,8\n")
    assert run(["inventory", "import", str(file), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "rack r1 -> r2" in shown and "no longer named" in shown
    assert run(["nodes", "add", "n7", "--reason", "ordered", "--rack", "r7"]) == 0
    assert run(["inventory", "list"]) == 0
    assert "r7" in capsys.readouterr().out
    assert run(["inventory", "import"]) == 2
    scontrol = folder / "scontrol"
    scontrol.write_text(
        f"#!/bin/sh\ncat {FIXTURES}/scontrol_$([ $2 = node ] && echo nodes || echo topology).txt\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin:{Path(sys.executable).parent}")
    assert run(["inventory", "import", "--slurm", "--yes"]) == 0
    assert placed(server, "n1")["origin"] == {
        "rack": "file",
        "gpus_expected": "file",
        "leaf": "slurm",
        "pool": "slurm",
    }
