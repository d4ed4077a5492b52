"""Story 15 (eks-node-monitoring-agent#245)."""

from __future__ import annotations

from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    gpu = node.gpu(7)
    fleet.never_suspect(*(node.gpu(number) for number in range(7)))
    fleet.run(60)
    node.set_gpu(7, gpu_row_remap_failure=1.0)
    fleet.run(120)
    fleet.never("the GPU is usable again", lambda: gpu.key not in fleet.excluded())
    node.sends = False
    fleet.run(240)
    fleet.reboot(node)
    fleet.run(7200, every_s=300)
    return fleet


STORY = Story(
    15,
    "A remap failure that survives the reboot",
    "A remapping fails; the node reboots, and the flag stands as before.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.excluded() == [fleet.nodes[0].gpu(7).key]
    assert_documented(STORY, fleet)
