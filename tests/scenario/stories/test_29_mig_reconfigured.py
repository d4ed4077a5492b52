"""Story 29 (NVML: no utilisation or power of a MIG device)."""

from __future__ import annotations

from gpuwarden_wire.readings import NotSupported
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2, policy=EAGER, shaped=whole)
    fleet.never_excluded()
    fleet.never_suspect()
    node = fleet.nodes[0]
    fleet.run(300)
    node.set_gpus(
        gpu_mig_mode=1.0,
        gpu_mig_devices=7.0,
        gpu_utilization_ratio=NotSupported(),
        gpu_sm_clock_hertz=1.2e9,
        gpu_power_watts=210.0,
        gpu_nvlinks_active=0.0,
        gpu_nvlinks_inactive=18.0,
    )
    fleet.run(3600, every_s=120)
    node.set_gpus(
        gpu_mig_mode=0.0,
        gpu_mig_devices=0.0,
        gpu_utilization_ratio=0.98,
        gpu_sm_clock_hertz=1.7e9,
        gpu_power_watts=640.0,
        gpu_nvlinks_active=18.0,
        gpu_nvlinks_inactive=0.0,
    )
    fleet.run(1800, every_s=120)
    return fleet


def whole(node: Node) -> None:
    node.set_gpus(gpu_mig_mode=0.0, gpu_mig_devices=0.0, gpu_ecc_mode=1.0)


STORY = Story(
    29,
    "MIG is reconfigured",
    (
        "GPUs are cut into MIG devices and put together again; utilisation and PCIe cannot be "
        "read meanwhile."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
