"""Common causes, maintenance and a person's clear, through the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run as run_command
from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.feed import exclusions_of, get, quick_settings, wait_sweeps, xid_event
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import StoreKind, query

BOTH_STORES = True
NODES = ("n1", "n2", "n3")
GPUS = {node: [make_gpu(number, node) for number in range(4)] for node in NODES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Path:
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    with running_server(quick_settings(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def feeders(server: Running) -> Iterator[dict[str, Feeder]]:
    made = {node: Feeder(server, server.mint("agent", node), node) for node in NODES}
    for node, feeder in made.items():
        feeder.introduce(GPUS[node])
    yield made
    for feeder in made.values():
        feeder.close()


def live(server: Running, **query_: str) -> list[dict[str, Any]]:
    found = get(server, "/v1/incidents", phase="live", **query_)["items"]
    assert isinstance(found, list)
    return found


def excluded(server: Running) -> set[str]:
    return {one["gpu_uuid"] for one in exclusions_of(server)["exclusions"]}


def test_a_programs_fault_is_one_incident_of_its_job_and_its_gpus_wait_behind_it(
    server: Running, feeders: dict[str, Feeder]
) -> None:
    for node in ("n1", "n2"):
        jobs = tuple(
            GpuJob(gpu_uuid=gpu.gpu_uuid, kind=JobKind.SLURM, job_id="7") for gpu in GPUS[node][:2]
        )
        feeders[node].events(feeders[node].inventory(GPUS[node], jobs=jobs))
        feeders[node].events(*(xid_event(31, gpu.pci_bus_id) for gpu in GPUS[node][:2]))

    def behind() -> list[dict[str, Any]]:
        return [one for one in live(server) if one["parent_id"] is not None]

    wait_until(lambda: len(behind()) == 4, "its GPUs are behind the job")
    (parent,) = live(server, entity="job:slurm:7")
    assert (parent["entity_kind"], parent["node_id"], parent["fault_class"]) == (
        *("place", ""),
        "application",
    )
    assert {one["parent_id"] for one in behind()} == {parent["id"]}
    whole = get(server, f"/v1/incidents/{parent['id']}")
    assert whole["moves"][0]["after"] == "open"
    assert get(server, "/v1/jobs/slurm:7/why")["cause"] == "application"
    assert not excluded(server)


def test_what_a_person_clears_comes_back_on_new_evidence_only(
    server: Running,
    feeders: dict[str, Feeder],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    gpu = GPUS["n1"][3]
    first = xid_event(79, gpu.pci_bus_id)
    feeders["n1"].events(first)
    wait_until(lambda: gpu.gpu_uuid in excluded(server), "it is excluded")
    (incident,) = live(server, entity=gpu.gpu_uuid)
    key_file = tmp_path / "key"
    key_file.write_text(server.mint("operator", name="ann"))
    words = ("incident", "clear", incident["id"], "--reason", "reseated")
    assert run_command(["--url", server.url, "--key-file", str(key_file), *words]) == 0
    assert "new evidence only" in capsys.readouterr().out
    wait_until(lambda: gpu.gpu_uuid not in excluded(server), "its exclusion ends")
    wait_sweeps(server)
    assert not live(server, entity=gpu.gpu_uuid)
    told = get(server, f"/v1/incidents/{incident['id']}")
    assert told["phase"] == "resolved"
    assert (told["moves"][-1]["reason"], told["moves"][-1]["author"]) == (
        "cleared: reseated",
        "ann",
    )
    asked = "SELECT author, target FROM audit WHERE action = 'clear_incident'"
    audited = query(folder / "state", asked)
    assert audited == [("ann", incident["id"])]
    kept = "SELECT detector FROM clearances"
    assert ("xid:79",) in query(folder / "state", kept)
    again = server.admin.post(f"/v1/incidents/{incident['id']}/clear", json={"reason": "x"})
    assert again.status_code == 409
    feeders["n1"].events(xid_event(79, gpu.pci_bus_id))
    wait_until(lambda: gpu.gpu_uuid in excluded(server), "another one is news")
    assert ("xid:79",) not in query(folder / "state", kept), "nor does a restart bring it back"


def test_under_maintenance_nothing_is_decided_until_its_end(
    server: Running, feeders: dict[str, Feeder]
) -> None:
    body = {
        "kind": "maintenance",
        "matchers": ["node=n3"],
        "duration_s": 3600,
        "reason": "new firmware",
    }
    window = server.admin.post("/v1/silences", json=body).raise_for_status().json()
    gpu = GPUS["n3"][0]
    feeders["n3"].events(xid_event(79, gpu.pci_bus_id))
    wait_until(lambda: live(server, node="n3"), "the fault is on record")
    (incident,) = live(server, node="n3")
    assert "new firmware" in incident["held"] and window["id"] in incident["held"]
    wait_sweeps(server)
    assert gpu.gpu_uuid not in excluded(server)
    assert not get(server, "/v1/decisions", node="n3", phase="live")["items"]
    path = f"/v1/silences/{window['id']}/expire"
    server.admin.post(path, json={"reason": "done"}).raise_for_status()
    wait_until(lambda: gpu.gpu_uuid in excluded(server), "it is judged at the end")
    assert live(server, node="n3")[0]["held"] == ""
