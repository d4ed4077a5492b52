"""POST /v1/sessions/{id}/progress: steps sharpen a diagnosis, an odd loss is only evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import JobPlace, RuntimeSettings
from gpuwarden_runtime.progress import make_progress
from gpuwarden_wire.batches import Table
from gpuwarden_wire.events import GpuJob, JobKind
from tests.builders.feed import exclusions_of, get, quick_settings
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.builders.stores import query
from tests.fakes.clock import MovedClock

BOTH_STORES = True
MINUTES, SLOW_FROM = 36, 24
PATH = "/v1/sessions/slurm:7/progress"


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def server(tmp_path: Path, clock: MovedClock) -> Iterator[Running]:
    with running_server(quick_settings(tmp_path), clock) as running:
        yield running


def job_on(server: Running, node: str) -> Feeder:
    feeder = Feeder(server, server.mint("agent", node), node)
    gpus = [make_gpu(number, node) for number in range(2)]
    jobs = tuple(GpuJob(gpu_uuid=g.gpu_uuid, kind=JobKind.SLURM, job_id="7") for g in gpus)
    feeder.introduce(gpus, jobs=jobs)
    return feeder


def tell(server: Running, **body: Any) -> dict[str, Any]:
    answer = server.admin.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_told_steps_make_the_pace_of_a_job_and_outlast_a_restart(
    tmp_path: Path, clock: MovedClock
) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings, clock) as server:
        feeder = job_on(server, "n1")
        begin = (clock.now() // 60 + 1) * 60
        clock.ahead += begin - clock.now()
        tables: list[Table] = []
        for minute in range(MINUTES):
            clock.ahead += begin + 60.0 * minute + 30.0 - clock.now()
            seconds = 2.0 if minute < SLOW_FROM else 4.0
            tell(server, step=30 * minute, step_seconds=seconds, loss=2.0, rank=0)
            rows = {f"GPU-n1-{n}": (0.97, 620.0) for n in range(2)}
            named = ("gpu_utilization_ratio", "gpu_power_watts")
            table, schema = gpu_table(rows, begin + 60.0 * minute + 20.0, named)
            tables.append(table)
        clock.ahead += 60.0
        feeder.telemetry(tables, [schema])
        asked = {"job": "slurm:7", "begin": begin + 60 * 20, "end": clock.now(), "past_s": 1200.0}
        told = server.admin.post("/v1/diagnoses", json=asked).json()
        feeder.close()
    assert told["phases"]["measured"], told
    assert told["slow_since"] == pytest.approx(begin + 60 * SLOW_FROM, abs=61)
    assert told["lost_share"] == pytest.approx(0.5, abs=0.05)

    with running_server(settings, clock) as server:
        again = server.admin.post("/v1/diagnoses", json=asked).json()
    assert again["phases"]["pace"] == told["phases"]["pace"]


def test_a_loss_that_is_not_finite_never_excludes_by_itself(server: Running) -> None:
    job_on(server, "n1").close()
    for step in range(40):
        assert tell(server, step=step, loss=2.0 + 0.01 * (step % 5), rank=0)["odd_loss"] is None
    odd = tell(server, step=41, loss="nan", rank=1, gpu_uuid="GPU-n1-1")
    assert odd["odd_loss"] == "not_finite"
    assert tell(server, step=42, loss="inf", rank=1, gpu_uuid="GPU-n1-1")["event_id"] is None
    wait_until(lambda: get(server, "/v1/incidents", entity="GPU-n1-1")["items"], "an incident")

    (incident,) = get(server, "/v1/incidents", entity="GPU-n1-1")["items"]
    assert incident["fault_class"] == "unknown"
    assert "loss nan at step 41 on rank 1 of slurm:7" in incident["why"]
    (event,) = get(server, "/v1/events", node="n1", kind="job_loss")["items"]
    assert event["id"] == odd["event_id"]
    # However many ranks, steps and hours: the policy of these tests acts on all else at once.
    for hour in range(6):
        for rank in range(2):
            tell(
                server,
                step=100 + hour,
                loss="nan",
                rank=100 + 10 * hour + rank,
                gpu_uuid=f"GPU-n1-{rank}",
            )
    spike = tell(server, step=300, loss=50.0, rank=7, node="n1")
    assert spike["odd_loss"] == "spike"
    told = len(get(server, "/v1/events", node="n1", kind="job_loss")["items"])
    assert told == 14
    swept = server.figure("gpuwarden_sweep_duration_seconds_count")
    wait_until(
        lambda: server.figure("gpuwarden_sweep_duration_seconds_count") > swept + 2, "sweeps"
    )
    assert exclusions_of(server)["count"] == 0
    rungs = {one["rung"] for one in get(server, "/v1/decisions")["items"]}
    assert rungs <= {"observe", "suspect"}
    states = {one["state"] for one in get(server, "/v1/gpus")["items"]}
    assert states <= {"healthy", "suspect"}


def test_who_may_tell_and_of_what(server: Running) -> None:
    job_on(server, "n1").close()
    job_on(server, "n2").close()
    scope = {"role": "runtime", "scope": {"nodes": ["n3"]}}
    narrow = server.admin.post("/v1/keys", json=scope).json()["key"]
    for key, path, body, code in (
        (server.mint("runtime"), PATH, {"step": 1}, None),
        (server.mint("runtime"), "/v1/sessions/7/progress", {"step": 1}, None),
        (server.mint("reader"), PATH, {"step": 1}, "role_not_allowed"),
        (narrow, PATH, {"step": 1}, "outside_scope"),
        (narrow, "/v1/sessions/slurm:9/progress", {"step": 1}, "outside_scope"),
        (server.mint("runtime"), "/v1/sessions/8/progress", {"step": 1}, "unknown_job"),
        (server.mint("runtime"), PATH, {"step": -1}, "invalid_value"),
        (server.mint("runtime"), PATH, {"step": 1, "loss": "high"}, "invalid_value"),
        (server.mint("runtime"), PATH, {"step": 1, "step_seconds": 0}, "invalid_value"),
    ):
        with server.client(key) as client:
            answer = client.post(path, json=body)
        assert answer.json().get("code") == code, (path, body, answer.text)


def test_a_training_loop_needs_one_call(server: Running, tmp_path: Path) -> None:
    job_on(server, "n1").close()
    settings = RuntimeSettings(server.url, server.mint("runtime"))
    progress = make_progress(settings, JobPlace("slurm:7", 0, "n1"))
    progress.report(12, float("nan"))
    wait_until(lambda: get(server, "/v1/events", kind="job_loss")["items"], "an event")
    with Client(settings) as client:
        assert client.tell_progress("slurm:7", 13, loss=2.0).job == "slurm:7"


def test_minutes_are_stored_once_and_go_with_time(
    server: Running, tmp_path: Path, clock: MovedClock
) -> None:
    tell(server, step=1, loss=2.0)
    tell(server, step=2, loss="nan")
    assert server.app is not None
    book = server.app.state.diagnoses.progress
    assert book.save() == 1
    assert book.save() == 0
    rows = query(tmp_path / "state", "SELECT told, last_step, loss, not_finite FROM job_progress")
    assert [tuple(row) for row in rows] == [(2, 2, 2.0, 1)]
