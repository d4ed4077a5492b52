"""The server asks by itself where a job became slower; the judge opens an incident, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwarden_wire.batches import pack_table
from gpuwarden_wire.events import GpuJob, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import exclusions_of, get, quick_settings
from tests.builders.server import Feeder, Running, gpu_table, make_gpu, running_server, wait_until
from tests.fakes.clock import MovedClock

NODES = ("n1", "n2", "n3")
READINGS = (
    "gpu_utilization_ratio",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_memory_used_bytes",
    "gpu_sm_clock_hertz",
)
MOUNT_READINGS = (
    "mount_read_bytes_total",
    "mount_written_bytes_total",
    "mount_operations_total",
    "mount_round_trip_seconds_total",
    "mount_queue_seconds_total",
    "mount_execute_seconds_total",
)
WELL = (3e9, 0.0, 3e3, 12.0, 0.3, 12.5)
STALLED = (3e8, 0.0, 3e2, 900.0, 1.0, 902.0)
"""What a mount moves, asks and waits in a minute."""


class Stage:
    """Three nodes, one job, one mount; a minute at a time."""

    def __init__(self, server: Running, clock: MovedClock) -> None:
        self.server, self.clock = server, clock
        self.feeders = [self.introduced(node) for node in NODES]
        self.moved = (0.0,) * len(WELL)
        assert server.app is not None
        self.trigger, self.judge = server.app.state.diagnoses.trigger, server.app.state.judging

    def introduced(self, node: str) -> Feeder:
        feeder = Feeder(self.server, self.server.mint("agent", node), node)
        gpus = [make_gpu(number, node) for number in range(2)]
        jobs = tuple(GpuJob(gpu_uuid=g.gpu_uuid, kind=JobKind.SLURM, job_id="7") for g in gpus)
        feeder.introduce(gpus, jobs=jobs)
        return feeder

    def minutes(self, count: int, *, stalled: bool = False) -> None:
        gpu = (0.05, 120.0, 700.0, 6e10, 1.4e9) if stalled else (0.97, 620.0, 700.0, 6e10, 1.98e9)
        mounts = schema_for(EntityKind.MOUNT, MOUNT_READINGS)
        for _ in range(count):
            self.clock.ahead += 60.0
            at = self.clock.now()
            grown = STALLED if stalled else WELL
            self.moved = tuple(a + b for a, b in zip(self.moved, grown, strict=True))
            for feeder in self.feeders:
                rows = {f"GPU-{feeder.node_id}-{n}": gpu for n in range(2)}
                table, schema = gpu_table(rows, at, READINGS)
                tables = [table, pack_table(mounts, at, {"/scratch": self.moved})]
                feeder.telemetry(tables, [schema, mounts])
            self.trigger.look(self.judge)

    def incidents(self, phase: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = get(self.server, "/v1/incidents", phase=phase)["items"]
        return items

    def diagnoses(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = get(self.server, "/v1/diagnoses")["items"]
        return items


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    clock = MovedClock()
    with running_server(quick_settings(tmp_path, diagnosis_unasked=False), clock) as server:
        made = Stage(server, clock)
        yield made
        for feeder in made.feeders:
            feeder.close()


def test_a_stall_opens_an_incident_of_storage_excludes_nothing_and_closes(stage: Stage) -> None:
    stage.minutes(38)
    assert stage.diagnoses() == []
    assert stage.incidents("live") == []

    stage.minutes(9, stalled=True)
    (made,) = stage.diagnoses()
    assert (made["asked_by"], made["job"], made["kind"]) == ("trigger", "slurm:7", "storage"), made
    mine = [one for one in stage.incidents("live") if one["entity"] == "mount:/scratch"]
    (incident,) = mine
    assert incident["fault_class"] == "storage"
    assert made["id"] in incident["why"]
    assert "innocent: " in incident["why"]
    assert exclusions_of(stage.server)["count"] == 0
    assert {one["rung"] for one in get(stage.server, "/v1/decisions")["items"]} <= {"suspect"}
    assert stage.trigger.hit() == {"mount:/scratch": frozenset(NODES)}

    stage.minutes(9)
    assert stage.trigger.hit() == {}
    assert len(stage.diagnoses()) == 1  # a job that is well is not asked about
    stage.clock.ahead += 3600.0

    def resolved() -> bool:
        return any(one["id"] == incident["id"] for one in stage.incidents("resolved"))

    wait_until(resolved, "the incident is resolved")
    assert exclusions_of(stage.server)["count"] == 0
