"""Checkpoints of jobs: found in what agents sent, kept, asked for, printed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

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
from tests.fakes.clock import MovedClock

BOTH_STORES = True
MINUTES, FROM, UNTIL = 50, 20, 24
RATE = 2e9
GPU_READINGS = ("gpu_utilization_ratio", "gpu_power_watts", "gpu_memory_used_bytes")
MOUNT_READINGS = (
    "mount_written_bytes_total",
    "mount_operations_total",
    "mount_round_trip_seconds_total",
    "mount_queue_seconds_total",
    "mount_execute_seconds_total",
)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def server(tmp_path: Path, clock: MovedClock) -> Iterator[Running]:
    with running_server(make_settings(tmp_path, job_checkpoints_every_s=0.0), clock) as running:
        yield running


def tell(server: Running, clock: MovedClock, node: str) -> float:
    """A job that writes 480 GB from minute 20 to minute 24; gives when that began."""
    feeder = Feeder(server, server.mint("agent", node), node)
    gpus = [make_gpu(number, node) for number in range(2)]
    jobs = tuple(GpuJob(gpu_uuid=g.gpu_uuid, kind=JobKind.SLURM, job_id="7") for g in gpus)
    feeder.introduce(gpus, jobs=jobs)
    begin, tables, written = (clock.now() // 60 + 1) * 60.0, list[Table](), 0.0
    clock.ahead += 60.0 * (MINUTES + 2)
    mounts = schema_for(EntityKind.MOUNT, MOUNT_READINGS)
    for minute in range(MINUTES):
        saves = FROM <= minute < UNTIL
        written += 60.0 * RATE if saves else 0.0
        at, asked = begin + 60.0 * minute + 20.0, written / 1e6
        row = (0.02, 90.0, 6e10) if saves else (0.97, 600.0, 6e10)
        table, schema = gpu_table({g.gpu_uuid: row for g in gpus}, at, GPU_READINGS)
        moved = (written, asked, 0.01 * asked, 0.03 * asked, 0.05 * asked)
        tables += [table, pack_table(mounts, at, {"/scratch": moved})]
    feeder.telemetry(tables, [schema, mounts])
    feeder.close()
    return begin + 60.0 * FROM


def look(server: Running) -> None:
    assert server.app is not None
    asyncio.run(server.app.state.checkpoints.look())


@pytest.mark.postgres
def test_a_checkpoint_is_found_once_and_told_with_its_profile(
    server: Running, clock: MovedClock, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert server.admin.get("/v1/checkpoints").json() == {
        "profiles": [], "items": [], "left_out": False
    }  # fmt: skip
    began = tell(server, clock, "n1")
    look(server)
    look(server)  # the same again changes nothing

    told = server.admin.get("/v1/checkpoints", params={"job": "7"}).json()

    (one,) = told["items"]
    assert (one["job"], one["mount"], one["nodes"]) == ("slurm:7", "/scratch", 1)
    assert (one["begin"], one["duration_s"]) == (began, 240.0)
    assert one["size_bytes"] == pytest.approx(240 * RATE)
    assert one["request_s"] == pytest.approx(0.05)
    shares = [one[f"{name}_share"] for name in ("queue", "round_trip", "rest")]
    assert shares == pytest.approx([0.6, 0.2, 0.2])
    assert one["lost_s"] == pytest.approx(240.0, rel=0.05)
    (profile,) = told["profiles"]
    assert (profile["count"], profile["latest_of_best"], profile["trend_per_week"]) == (1, 1, None)
    for narrowed in ({"job": "8"}, {"mount": "/home"}, {"begin": 9, "end": 9}):
        assert server.admin.get("/v1/checkpoints", params=narrowed).json()["items"] == []

    monkeypatch.setenv("GPUWARDEN_URL", server.url)
    monkeypatch.setenv("GPUWARDEN_KEY", server.admin.headers["authorization"].split()[1])
    assert run_command(["checkpoints", "slurm:7"]) == 0
    printed = capsys.readouterr().out
    assert "1 checkpoints of 480 GB, 240 s each, the latest at 100% of the best" in printed
