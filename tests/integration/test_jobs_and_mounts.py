"""Jobs of GPUs and network mounts, from the wire to what is served."""

from __future__ import annotations

import time
from pathlib import Path

from gpuwarden_wire.batches import pack_table
from gpuwarden_wire.events import EventKind, GpuJob, JobKind
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported
from gpuwarden_wire.registry import metrics_of
from gpuwarden_wire.schema import schema_for
from tests.builders.feed import get, quick_settings
from tests.builders.server import Feeder, Running, make_event, make_gpu, running_server

GPUS = [make_gpu(number, "n1") for number in range(2)]
JOBS = (
    GpuJob(gpu_uuid=GPUS[0].gpu_uuid, kind=JobKind.SLURM, job_id="4711"),
    GpuJob(gpu_uuid=GPUS[0].gpu_uuid, kind=JobKind.TORCHRUN, job_id="llm-7b"),
)
MOUNTS = [metric.name for metric in metrics_of(EntityKind.MOUNT)]


def jobs_of(server: Running, number: int) -> list[dict[str, str]]:
    found = get(server, f"/v1/gpus/{GPUS[number].gpu_uuid}")["jobs"]
    assert isinstance(found, list)
    return found


def test_jobs_stay_with_their_gpu_until_the_next_inventory_and_over_a_restart(
    tmp_path: Path,
) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as server:
        node = Feeder(server, server.mint("agent", "n1"), "n1")
        node.introduce(GPUS, jobs=JOBS)
        assert jobs_of(server, 0) == [
            {"kind": "slurm", "id": "4711"},
            {"kind": "torchrun", "id": "llm-7b"},
        ]
        assert jobs_of(server, 1) == []
        unknown = GpuJob(gpu_uuid="GPU-x", kind=JobKind.SLURM, job_id="1")
        node.introduce(GPUS[1:], jobs=(unknown,))
        assert jobs_of(server, 0) == [], "a GPU that is gone runs nothing"
        assert jobs_of(server, 1) == []
        node.introduce(GPUS, jobs=JOBS)
        node.close()
    with running_server(settings) as server:
        assert [job["id"] for job in jobs_of(server, 0)] == ["4711", "llm-7b"]


def test_mounts_are_stored_beside_all_else_of_a_node(tmp_path: Path) -> None:
    settings = quick_settings(tmp_path)
    with running_server(settings) as server:
        node = Feeder(server, server.mint("agent", "n1"), "n1")
        node.introduce(GPUS)
        schema = schema_for(EntityKind.MOUNT, MOUNTS)
        row = [float(number) for number in range(len(MOUNTS) - 1)]
        table = pack_table(schema, time.time(), {"/mnt/shared": [*row, NotSupported()]})
        acknowledged = node.telemetry([table], [schema])
        assert acknowledged.applied_seq == 1
        named = make_event(kind=EventKind.CHECK_FAILED, entity_kind=EntityKind.MOUNT, entity="/mnt")
        node.events(named)
        stored = get(server, "/v1/events", node="n1")["items"][-1]
        assert stored["id"] == named.id
        assert (stored["entity_kind"], stored["entity"]) == ("mount", "n1//mnt")
        node.close()
    with running_server(settings) as server:  # the checkpoint knows the kind too
        assert get(server, "/v1/nodes/n1")["gpus_visible"] == 2
