"""Story 4 (NVSentinel#1481)."""

from __future__ import annotations

from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    model = "NVIDIA A100-PCIE-40GB"
    fleet = StoryFleet(2, gpus=4, policy=EAGER, model=model, shaped=without_bridge)
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.run(3600, every_s=300)
    return fleet


def without_bridge(node: Node) -> None:
    node.set_gpus(
        gpu_nvlinks_active=0.0,
        gpu_nvlinks_inactive=12.0,
        gpu_pcie_link_generation=4.0,
        gpu_pcie_link_generation_max=4.0,
    )
    node.set(EntityKind.NODE, "", node_nvswitches=0.0, node_fabric_manager_running=0.0)


STORY = Story(
    4,
    'A PCIe card without a bridge: 12 links "down"',
    (
        "A100 PCIe cards have twelve NVLinks and no bridge is fitted: all twelve are inactive, "
        "for ever."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
