"""Jobs over real HTTP: where they ran, how they ended, and what that says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run as run_command
from gpuwarden_server.incidents.repository import write_incidents
from gpuwarden_verdict.entities import EntityRef, Severity
from gpuwarden_wire.events import EventKind, GpuJob, JobKind
from gpuwarden_wire.metrics import EntityKind
from tests.builders.cases import incident, item
from tests.builders.feed import get, quick_settings, xid_event
from tests.builders.server import (
    Feeder,
    Running,
    make_event,
    make_gpu,
    running_server,
    wait_until,
)
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


@dataclass
class Cli:
    """The command, told where the server is; answers with its exit code and all that it printed."""

    server: Running
    key_file: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> tuple[int, str]:
        flags = ["--url", self.server.url, "--key-file", str(self.key_file)]
        self.capsys.readouterr()  # the server logs to the same place
        code = run_command([*flags, *words])
        told = self.capsys.readouterr()
        return int(code), told.out + told.err


@pytest.fixture
def cli(server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    key_file = tmp_path / "key"
    key_file.write_text(server.mint("operator"))
    return Cli(server, key_file, capsys)


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


def why(server: Running, job: str) -> dict[str, Any]:
    found = get(server, f"/v1/jobs/{job}/why")
    assert isinstance(found, dict)
    assert "\n" not in found["line"]
    return found


def test_why_a_job_ended_in_one_line_while_it_runs_and_after(
    server: Running, feeders: dict[str, Feeder], cli: Cli
) -> None:
    for feeder in feeders.values():
        run(feeder, "400")
    running = why(server, "400")
    assert (running["cause"], running["running"], running["nodes"], running["gpus"]) == (
        *("none", True),
        *(2, 4),
    )
    lost = GPUS["n1"][1]
    feeders["n1"].events(xid_event(79, lost.pci_bus_id))
    wait_until(lambda: why(server, "400")["cause"] == "hardware", "the fault is seen")
    for feeder in feeders.values():
        run(feeder)
    end_job(server, job="slurm:400", state="FAILED", exit_code=1)
    run(feeders["n1"], "401")
    told = why(server, "slurm:400")
    assert (told["cause"], told["running"], told["node_id"], told["entity"]) == (
        *("hardware", False),
        *("n1", lost.gpu_uuid),
    )
    assert told["line"].startswith("slurm:400 FAILED (exit code 1): hardware: n1 GPU 1 GPU-")
    assert "XID 79" in told["line"] and told["incident_id"] in told["line"]

    code, out = cli("why", "slurm:400")
    assert (code, out.strip()) == (0, told["line"])
    assert cli("why", "slurm:400", "--exit-code")[0] == 1
    assert told["incident_id"] in cli("why", "400", "--all")[1]
    assert '"cause": "hardware"' in cli("why", "400", "--json")[1]


def test_a_job_that_failed_where_nothing_is_wrong_is_its_programs_unless_something_is_unseen(
    server: Running, feeders: dict[str, Feeder], cli: Cli
) -> None:
    run(feeders["n2"], "500")
    code, out = cli("job", "end", "slurm:500", "--state", "FAILED", "--exit-code", "2")
    assert (code, out) == (0, "slurm:500 ended FAILED\n")
    assert "already" in cli("job", "end", "500", "--state", "FAILED", "--exit-code", "2")[1]
    told = why(server, "500")
    assert told["line"] == (
        "slurm:500 FAILED (exit code 2): application: nothing was found wrong on its 1 node and "
        "2 GPUs; see the job's own log"
    )
    reason = {"source": "kernel_log", "reason": "permission_denied"}
    trouble = make_event(kind=EventKind.COLLECTOR_TROUBLE, attributes=reason)
    feeders["n2"].events(trouble)
    wait_until(lambda: why(server, "500")["cause"] == "unknown", "the trouble is noted")
    assert why(server, "500")["line"].endswith("unknown: n2: kernel_log: permission_denied")


def test_an_unknown_job_is_said_to_be(server: Running, cli: Cli) -> None:
    answer = server.admin.get("/v1/jobs/slurm:7777/why")
    assert answer.status_code == 404
    assert "no job 'slurm:7777' is known" in answer.json()["detail"]
    code, out = cli("why", "7777")
    assert code == 4
    assert "no node and no job '7777' is known" in out
    assert cli("job", "end", "7777", "--state", "FAILED")[0] == 4


def test_a_score_whose_gate_is_closed_blames_no_hardware_for_a_job(
    server: Running, feeders: dict[str, Feeder]
) -> None:
    run(feeders["n1"], "4800")
    wait_until(lambda: get(server, "/v1/jobs/4800/why")["runs"], "its run", 30.0)
    gpu = EntityRef(EntityKind.GPU, GPUS["n1"][0].gpu_uuid, "n1")
    now = time.time()
    said = item(
        detector="learned_score",
        sentence="learnt risk 95%",
        severity=Severity.ERROR,
        acts_alone=False,
        model="a former one",
        first_at=now,
        last_at=now,
    )
    told = incident(gpu, said, id="inc-former-score", opened_at=now)
    assert server.app is not None
    state = server.app.state.base.store.state
    state.writer.call(lambda connection: write_incidents(connection, [told]))
    found = get(server, "/v1/jobs/4800/why")
    assert (found["cause"], found["incident_id"]) != ("hardware", told.id)
    run(feeders["n1"])
