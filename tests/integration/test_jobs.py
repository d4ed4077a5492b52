"""Jobs over real HTTP: where they ran, how they ended, and what that says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.feed import get, quick_settings
from tests.builders.server import Feeder, Running, make_gpu, running_server, wait_until
from tests.builders.stores import StoreKind, query

BOTH_STORES = True
NODES = ("n1", "n2")
GPUS = {node: [make_gpu(number, node) for number in range(2)] for node in NODES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind) -> Path:
    return tmp_path_factory.mktemp("jobs")


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


def run(feeder: Feeder, job: str = "", gpus: int = 2) -> None:
    """An inventory in which a Slurm job runs on the first GPUs of a node; none without a name."""
    mine = GPUS[feeder.node_id]
    jobs = tuple(
        GpuJob(gpu_uuid=gpu.gpu_uuid, kind=JobKind.SLURM, job_id=job) for gpu in mine[:gpus]
    )
    feeder.events(feeder.inventory(mine, jobs=jobs if job else ()))


def end_job(server: Running, role: str = "feeder", **said: Any) -> dict[str, Any]:
    with server.client(server.mint(role)) as client:
        answer = client.post("/v1/events", json={"job_ends": [said]})
    assert answer.status_code == 200, answer.text
    (item,) = answer.json()["items"]
    return dict(item)


def job_events(server: Running, node: str) -> list[dict[str, Any]]:
    found = get(server, "/v1/events", node=node, kind="job_ended")["items"]
    assert isinstance(found, list)
    return found


def test_an_end_is_told_of_each_node_that_ran_the_job_and_once(
    server: Running, feeders: dict[str, Feeder]
) -> None:
    for feeder in feeders.values():
        run(feeder, "100")
    ended = end_job(server, job="100", state="failed", exit_code=137, user="ann")
    assert ended["outcome"] == "stored"
    again = end_job(server, job="slurm:100", state="FAILED", exit_code=137, user="ann")
    assert again["outcome"] == "duplicate", "an epilog runs on each node"
    for node in NODES:
        (told,) = job_events(server, node)
        assert told["attributes"] == {
            "job": "slurm:100",
            "state": "FAILED",
            "exit_code": 137,
            "user": "ann",
            "nodes": 2,
        }


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ({"job": "999", "state": "FAILED"}, "unknown_job", "no job '999' was seen to run"),
        ({"job": "slurm:999", "state": "FAILED"}, "unknown_job", "nobody knows where it ran"),
        (
            {"job": "slurm:1", "state": "FAILED", "nodes": ["n9"]},
            "unknown_node",
            "no node 'n9' is known",
        ),
        ({"job": "slurm:1", "state": "SAD", "nodes": ["n1"]}, "invalid_value", "state 'SAD'"),
        (
            {"job": "slurm:1", "state": "FAILED", "nodes": ["n1"], "ended_at": 1e12},
            "in_future",
            "ahead of the server",
        ),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(
    server: Running, feeders: dict[str, Feeder], said: dict[str, Any], code: str, words: str
) -> None:
    item = end_job(server, **said)
    assert (item["outcome"], item["code"]) == ("refused", code)
    assert words in item["detail"]
    assert item["mend"]


def test_a_body_that_is_no_end_is_named_with_its_field(server: Running) -> None:
    with server.client(server.mint("feeder")) as client:
        answer = client.post("/v1/events", json={"job_ends": [{"job": "x y", "state": "FAILED"}]})
        assert answer.status_code == 422
        assert "body.job_ends.0.job" in answer.json()["detail"]


def test_jobs_of_several_users_that_end_badly_on_one_node_make_it_suspect(
    server: Running, feeders: dict[str, Feeder]
) -> None:
    for number, user in ((201, "ann"), (202, "bob"), (203, "cem")):
        run(feeders["n2"], str(number))
        end_job(server, job=f"slurm:{number}", state="FAILED", user=user)

    def suspected() -> bool:
        found = get(server, "/v1/incidents", node="n2", phase="live")["items"]
        return any("jobs of 3 users ended badly" in one["why"] for one in found)

    wait_until(suspected, "the node is looked at")
    assert get(server, "/v1/nodes/n2")["usable"] == "yes"
    assert not get(server, "/v1/incidents", node="n1", phase="live")["items"]


def test_where_a_job_ran_is_kept_with_its_time(folder: Path, feeders: dict[str, Feeder]) -> None:
    began = time.time()
    run(feeders["n1"], "300", gpus=1)
    run(feeders["n1"], "300", gpus=2)
    run(feeders["n1"])
    run(feeders["n1"], "300")  # the same id again: requeued
    wanted = "SELECT since, until, gpu_uuids FROM job_runs WHERE job = 'slurm:300' ORDER BY since"
    rows = query(folder / "state", wanted)
    assert len(rows) == 2
    assert began - 5 < rows[0][0] <= rows[0][1] <= rows[1][0]
    assert rows[1][1] is None
    assert GPUS["n1"][1].gpu_uuid in str(rows[0][2])
