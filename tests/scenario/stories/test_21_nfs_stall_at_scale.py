"""Story 21 (Lablup 4.2.5: visible at 60 nodes, absent at 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading
from tests.builders.stories import StoryFleet, leaves_of
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented

SOUND_MOUNT: Mapping[str, Reading] = {
    "mount_read_bytes_total": 0.0,
    "mount_written_bytes_total": 0.0,
    "mount_operations_total": 0.0,
    "mount_round_trip_seconds_total": 0.0,
    "mount_queue_seconds_total": 0.0,
    "mount_execute_seconds_total": 0.0,
    "mount_retransmits_total": 0.0,
    "mount_major_timeouts_total": 0.0,
    "mount_slots_in_use_ratio": 0.02,
    "mount_backlog_requests": 0.0,
    "mount_age_seconds": 9.0e5,
}


def tell() -> StoryFleet:
    fleet = StoryFleet(64, gpus=2, placed=leaves_of(32), shaped=mounted)
    fleet.never_excluded()
    fleet.never_incident("a GPU is blamed", lambda one: one.entity.kind is EntityKind.GPU)
    small, large = fleet.nodes[:4], fleet.nodes[4:]
    fleet.start_job("small", small)
    fleet.start_job("large", large)
    save(small, queue_s=0.5, backlog=3.0, slots=0.2, timeouts=0.0)
    fleet.run(600, every_s=60)
    assert fleet.open() == []
    save(large, queue_s=90.0, backlog=400.0, slots=1.0, timeouts=0.5)
    for node in large:
        node.set_gpus(gpu_utilization_ratio=0.03, gpu_power_watts=140.0)
    fleet.run(1200, every_s=60)
    (parent,) = [one for one in fleet.open() if one.entity.key == "mount:/scratch"]
    assert parent.fault_class is FaultClass.STORAGE
    save(large, queue_s=0.0, backlog=0.0, slots=0.02, timeouts=0.0)
    for node in large:
        node.set_gpus(gpu_utilization_ratio=0.98, gpu_power_watts=640.0)
    fleet.run(10_800, every_s=300)
    return fleet


def mounted(node: Node) -> None:
    node.readings[EntityKind.MOUNT] = {"/scratch": dict(SOUND_MOUNT)}


def save(
    nodes: Sequence[Node], queue_s: float, backlog: float, slots: float, timeouts: float
) -> None:
    """Seconds of queueing, requests and time-outs a second of each node."""
    for node in nodes:
        node.set(
            EntityKind.MOUNT,
            "/scratch",
            mount_backlog_requests=backlog,
            mount_slots_in_use_ratio=slots,
        )
        busy = 1.0 if slots > 0.1 else 0.0
        node.grow(
            EntityKind.MOUNT,
            "/scratch",
            mount_written_bytes_total=4.0e8 * busy,
            mount_operations_total=400.0 * busy,
            mount_round_trip_seconds_total=4.0 * busy,
            mount_queue_seconds_total=queue_s,
            mount_execute_seconds_total=4.5 * busy + queue_s,
            mount_major_timeouts_total=timeouts,
        )


STORY = Story(
    21,
    "An NFS server stalls under 60 nodes, and not under 4",
    (
        "A job on four nodes saves without a trace; one on sixty fills every client's slots, "
        "requests wait for tens of seconds and time out."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
