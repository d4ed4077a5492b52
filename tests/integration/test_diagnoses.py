"""POST /v1/diagnoses over real HTTP, from readings that agents sent; and the command over it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_cli.app import run as run_command
from gpuwarden_wire.batches import Table, pack_table
from gpuwarden_wire.events import GpuJob, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.server import (
    Feeder,
    Running,
    gpu_table,
    make_gpu,
    make_settings,
    running_server,
)
from tests.builders.stores import StoreKind
from tests.fakes.clock import MovedClock

BOTH_STORES = True
NODES = ("n1", "n2", "n3")
MINUTES, SLOW_FROM = 40, 25
CLOCK, SLOW_CLOCK = 1.98e9, 1.3e9
GPU_READINGS = (
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_memory_used_bytes",
    "gpu_pcie_link_width",
    "gpu_pcie_link_width_max",
)
MOUNT_READINGS = (
    "mount_read_bytes_total",
    "mount_written_bytes_total",
    "mount_operations_total",
    "mount_round_trip_seconds_total",
    "mount_queue_seconds_total",
    "mount_execute_seconds_total",
)
VICTIM = "GPU-n2-1"


@pytest.fixture(scope="module")
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, store_kind: StoreKind, clock: MovedClock
) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("diagnoses")
    with running_server(make_settings(folder), clock) as running:
        feeders = [introduced(running, node) for node in NODES]
        begin = (clock.now() // 60 + 1) * 60
        clock.ahead += 60.0 * (MINUTES + 1)
        for feeder in feeders:
            tell(feeder, begin)
        yield running


def introduced(server: Running, node: str) -> Feeder:
    """A job on all GPUs of a node."""
    feeder = Feeder(server, server.mint("agent", node), node)
    gpus = [make_gpu(number, node) for number in range(4)]
    jobs = tuple(GpuJob(gpu_uuid=g.gpu_uuid, kind=JobKind.SLURM, job_id="7") for g in gpus)
    feeder.introduce(gpus, jobs=jobs)
    return feeder


def tell(feeder: Feeder, begin: float) -> None:
    """Forty minutes of readings."""
    tables: list[Table] = []
    mounts = schema_for(EntityKind.MOUNT, MOUNT_READINGS)
    for minute in range(MINUTES):
        at = begin + 60.0 * minute + 20.0
        uuids = [f"GPU-{feeder.node_id}-{number}" for number in range(4)]
        rows = {uuid: gpu_row(uuid, minute) for uuid in uuids}
        table, schema = gpu_table(rows, at, GPU_READINGS)
        n = float(minute)
        moved = (3e9 * n, 0.0, 3e3 * n, 12.0 * n, 0.3 * n, 12.5 * n)
        tables += [table, pack_table(mounts, at, {"/scratch": moved})]
    feeder.telemetry(tables, [schema, mounts])
    feeder.close()


def gpu_row(uuid: str, minute: int) -> tuple[float, ...]:
    slow = uuid == VICTIM and minute >= SLOW_FROM
    clock = SLOW_CLOCK if slow else CLOCK
    return (0.97, 480.0 if slow else 620.0, clock, 6e10, 16.0, 16.0)


def ask(server: Running, clock: MovedClock, **body: Any) -> dict[str, Any]:
    end = clock.now()
    window = {"begin": end - 20 * 60, "end": end, "past_s": 1200.0}
    answer = server.admin.post("/v1/diagnoses", json=window | body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def test_the_slow_gpu_of_a_job_is_named_from_what_agents_sent(
    server: Running, clock: MovedClock
) -> None:
    told = ask(server, clock, job="slurm:7")

    assert told["kind"] == "gpu", told["line"]
    first = told["culprits"][0]
    assert (first["entity"], first["node_id"], first["layer"]) == (VICTIM, "n2", "clock")
    assert "GPU 1 of n2 clocks at 1.3e+09 Hz" in told["line"]
    assert "storage" in {one["what"] for one in told["acquitted"]}, told["blind"]
    assert set(told["phases"]["phase"]) <= {"compute", "unknown"}
    # all three call their mount alike, and read its counters once a minute
    assert told["phases"]["read_bytes"][5] == pytest.approx(3 * 3e9 / 60, rel=0.01)
    assert any("network" in words for words in told["blind"])  # no NIC was read


def test_the_fleet_is_told_the_same(server: Running, clock: MovedClock) -> None:
    told = ask(server, clock)
    assert (told["kind"], told["culprits"][0]["entity"]) == ("gpu", VICTIM)


def test_an_answer_is_kept_with_who_asked_and_found_again(
    server: Running, clock: MovedClock
) -> None:
    told = ask(server, clock, job="slurm:7")
    fleet = ask(server, clock)

    with server.client(server.mint("reader", name="ann")) as ann:
        assert ann.get(f"/v1/diagnoses/{told['id']}").json() == told
        asked = ann.post("/v1/diagnoses", json={"job": "slurm:7"}).json()
        page = ann.get("/v1/diagnoses", params={"limit": 1}).json()
        assert page["items"][0]["id"] == asked["id"]
        assert page["items"][0]["asked_by"] == "ann"
        rest = ann.get("/v1/diagnoses", params={"cursor": page["next_cursor"]}).json()["items"]
    assert [one["id"] for one in rest[:2]] == [fleet["id"], told["id"]]
    assert rest[1]["line"] == told["line"]
    assert (rest[1]["entity_kind"], rest[1]["entity"]) == ("gpu", VICTIM)

    listed = {one["id"] for one in [*page["items"], *rest]}
    of_job = {one["id"] for one in list_of(server, job="slurm:7")}
    assert told["id"] in of_job
    assert fleet["id"] not in of_job
    assert fleet["id"] in {one["id"] for one in list_of(server, job="")}
    assert {one["id"] for one in list_of(server, node="n3", culprit="gpu")} <= listed
    assert list_of(server, node="n9") == []
    assert list_of(server, culprit="storage") == []
    assert list_of(server, end=told["at"]) == [one for one in rest if one["at"] < told["at"]]
    assert server.admin.get("/v1/diagnoses/dia-0").status_code == 404


def list_of(server: Running, **where: Any) -> list[dict[str, Any]]:
    answer = server.admin.get("/v1/diagnoses", params=where)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_a_key_narrowed_to_some_nodes_reads_what_is_about_them(
    server: Running, clock: MovedClock
) -> None:
    told = ask(server, clock, job="slurm:7")
    body = {"role": "reader", "scope": {"nodes": ["n1"]}}
    key = server.admin.post("/v1/keys", json=body).json()["key"]
    with server.client(key) as narrow:
        about_own = narrow.get("/v1/diagnoses?node=n1").json()["items"]
        assert told["id"] in {one["id"] for one in about_own}
        for path in ("/v1/diagnoses", "/v1/diagnoses?node=n2", f"/v1/diagnoses/{told['id']}"):
            assert narrow.get(path).json()["code"] == "outside_scope", path


def test_a_repeat_under_one_key_is_kept_once(server: Running, clock: MovedClock) -> None:
    headers = {"Idempotency-Key": "diagnosis-once"}
    body = {"begin": clock.now() // 60 * 60 - 1200, "end": clock.now() // 60 * 60}
    first, again = (
        server.admin.post("/v1/diagnoses", json=body, headers=headers) for _ in range(2)
    )
    assert first.status_code == 200, first.text
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"


def test_questions_that_cannot_be_answered_say_why(server: Running, clock: MovedClock) -> None:
    now = clock.now()
    for body, status, code in (
        ({"job": "slurm:4"}, 404, "not_found"),
        ({"begin": now, "end": now - 60.0}, 422, "invalid_range"),
        ({"begin": now - 90.0, "end": now}, 422, "window_too_short"),
        ({"begin": now - 400_000.0, "end": now}, 422, "range_too_long"),
        ({"begin": -1.0}, 422, "invalid_value"),
    ):
        answer = server.admin.post("/v1/diagnoses", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code), body
        assert answer.json()["mend"]


def test_the_command_prints_it_and_writes_a_page_of_its_own(
    server: Running, clock: MovedClock, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    monkeypatch.setenv("GPUWARDEN_KEY", server.admin.headers["authorization"].split()[1])
    page, end = tmp_path / "page.html", clock.now()
    window = ["--window", str(end - 1200), str(end)]

    assert run_command(["diagnose", "7", *window, "--html", str(page)]) == 0

    printed = capsys.readouterr().out
    assert f"one GPU, {VICTIM} of n2 (clock)" in printed
    made = next(word for word in printed.replace(",", " ").split() if word.startswith("dia-"))
    assert run_command(["diagnose", "--list", "slurm:7"]) == 0
    assert made in capsys.readouterr().out
    assert run_command(["diagnose", "--show", made]) == 0
    assert f"one GPU, {VICTIM} of n2 (clock)" in capsys.readouterr().out
    assert run_command(["diagnose", "7", "--show", made]) == 2
    assert "--show names a diagnosis already" in capsys.readouterr().err
    assert "What it is not" in printed
    html = page.read_text()
    assert VICTIM in html
    assert "<svg" in html
    assert "http" not in html.replace("http-equiv", "")


def test_a_time_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["diagnose", "--window", "yesterday", "now"]) == 2
    assert "is no time" in capsys.readouterr().err
