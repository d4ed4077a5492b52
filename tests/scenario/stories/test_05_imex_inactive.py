"""Story 5 (NVSentinel#1471, aicr#2641)."""

from __future__ import annotations

from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2, policy=EAGER, shaped=alone)
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.run(3600, every_s=300)
    return fleet


def alone(node: Node) -> None:
    node.set(EntityKind.NODE, "", node_imex_running=0.0)
    node.set_gpus(gpu_fabric_state=3.0)  # NVML_GPU_FABRIC_STATE_COMPLETED


STORY = Story(
    5,
    "A single node with IMEX inactive",
    "IMEX serves memory across nodes of one NVLink domain; a node of its own needs none.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
