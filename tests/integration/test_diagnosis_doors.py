"""The same stall told by agents, and by Prometheus alone: both name the storage and its queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarden_models.diagnosis.plant import GPUS, Parts, Site, Work, sound
from gpuwarden_models.diagnosis.readings import play
from gpuwarden_verdict.diagnosis import Window
from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.remote_write import push
from tests.builders.server import Feeder, Running, make_gpu, make_settings, running_server
from tests.builders.told_windows import Node
from tests.fakes.waiting import wait_for

NODES, MINUTES, FIRST = 6, 42, 18


@pytest.fixture(scope="module")
def window() -> Window:
    """A job on six nodes whose file server grants too few credits from three clients on."""
    gpus = NODES * GPUS
    work = Work(
        name="slurm:7",
        nodes=np.arange(NODES),
        compute_s=1.0,
        talk_bytes=2e10,
        copy_s=0.05,
        prepare_s=0.5,
        feed_bytes=3e6,
        cache_bytes=2e8,
        save_every_s=400.0,
        save_bytes=3e10,
        pause_every_s=0.0,
        share=np.ones(gpus),
        presses=0.01,
        tells=False,
        watts=np.full(gpus, 620.0),
        next_save_s=(FIRST + 6) * 60.0,
    )
    site = Site(NODES, np.zeros(NODES, dtype=np.int64), [work], server_bytes=6e9)

    def state_at(_since: float) -> Parts:
        parts = sound(NODES)
        parts.credits, parts.server_from = 0.06, 3
        return parts

    return play(site, state_at, MINUTES, FIRST, np.random.default_rng(1))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running_server(make_settings(tmp_path)) as running:
        yield running


def begin_of_now() -> float:
    """So that the window's last minute is over."""
    return (time.time() // 60 - MINUTES - 1) * 60.0


def ask(server: Running, begin: float, job: str | None = None) -> dict[str, Any]:
    asked = {
        "job": job,
        "begin": begin + 60.0 * FIRST,
        "end": begin + 60.0 * MINUTES,
        "past_s": 60.0 * FIRST,
    }
    answer = server.admin.post("/v1/diagnoses", json=asked)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def must_blame_the_queues(told: dict[str, Any]) -> None:
    assert told["kind"] == "storage", told["line"]
    first = told["culprits"][0]
    assert (first["entity"], first["layer"]) == ("mount:/scratch", "rpc_queue")
    sentences = " ".join(one["sentence"] for one in first["evidence"])
    assert "RPC queue saturation" in sentences, sentences
    numbers = {k: v for one in first["evidence"] for k, v in one["numbers"].items()}
    assert numbers["queue_share"] > 0.8
    assert first["scale"]["affected_nodes"] == NODES
    assert {one["kind"] for one in told["culprits"] if one["score"] >= 0.3} == {"storage"}
    assert first["plane"] == "nfs"
    assert {one["plane"] for one in told["strips"]} == {"gpu", "nic", "nfs", "host"}
    assert {len(one["values"]) for one in told["strips"]} == {len(told["times"])} == {MINUTES}
    assert {"GPUs", "hosts", "local disks", "network"} <= {o["what"] for o in told["acquitted"]}


def test_agents_tell_of_a_stall(server: Running, window: Window) -> None:
    begin = begin_of_now()
    for row in range(NODES):
        node = Node(window, row, begin)
        feeder = Feeder(server, server.mint("agent", node.name), node.name)
        gpus = [make_gpu(number, node.name) for number in range(GPUS)]
        jobs = tuple(GpuJob(gpu_uuid=g.gpu_uuid, kind=JobKind.SLURM, job_id="7") for g in gpus)
        feeder.introduce(gpus, jobs=jobs)
        tables, schemas = zip(*node.tables(), strict=True)
        feeder.telemetry(tables, tuple(dict.fromkeys(schemas)))
        feeder.close()

    must_blame_the_queues(ask(server, begin))


def test_a_fleet_that_only_prometheus_tells_of_gets_the_same_answer(
    server: Running, window: Window
) -> None:
    begin = begin_of_now()
    nodes = [Node(window, row, begin) for row in range(NODES)]
    with server.client(server.mint("feeder")) as client:
        for minute in range(MINUTES):
            many = [one for node in nodes for one in node.scrape(minute)]
            assert push(client, many).status_code == 204
    wait_for(
        # all but the first two scrapes of a page are read when they come
        lambda: (
            server.figure("gpuwarden_remote_write_looks_total", outcome="taken")
            >= 2 * NODES * (MINUTES - 2)
        ),
        what="the scrapes are read",
    )

    told = ask(server, begin)

    must_blame_the_queues(told)
    assert "slots_in_use" not in str(told["culprits"][0]["evidence"])  # no exporter shows them
