"""Story 22 (Lablup 1.5: save bursts are normal)."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Reading
from tests.builders.stories import EAGER, StoryFleet, leaves_of
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
    fleet = StoryFleet(32, gpus=2, policy=EAGER, placed=leaves_of(16), shaped=mounted)
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.start_job("7", fleet.nodes)
    for _ in range(3):
        burst(fleet, 1.0)
        fleet.run(120, every_s=30)
        burst(fleet, 0.0)
        fleet.run(1680, every_s=240)
    return fleet


def mounted(node: Node) -> None:
    node.readings[EntityKind.MOUNT] = {"/scratch": dict(SOUND_MOUNT)}


def burst(fleet: StoryFleet, on: float) -> None:
    for node in fleet.nodes:
        node.set_gpus(
            gpu_utilization_ratio=0.02 if on else 0.98, gpu_power_watts=130.0 if on else 640.0
        )
        node.set(
            EntityKind.MOUNT,
            "/scratch",
            mount_backlog_requests=150.0 * on,
            mount_slots_in_use_ratio=0.02 + 0.98 * on,
        )
        node.grow(
            EntityKind.MOUNT,
            "/scratch",
            mount_written_bytes_total=6.0e8 * on,
            mount_operations_total=600.0 * on,
            mount_round_trip_seconds_total=9.0 * on,
            mount_queue_seconds_total=120.0 * on,
            mount_execute_seconds_total=129.0 * on,
        )


STORY = Story(
    22,
    "A checkpoint burst on all nodes",
    (
        "Every half hour all nodes of a job write their state for two minutes: full slots, a "
        "backlog, and idle GPUs. That is what a save looks like."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
