"""Story 26 (design: time informs, never orders)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_nodes import Node
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(4, policy=EAGER, shaped=long_in_use)
    fleet.never_excluded()
    fleet.never_suspect()
    ahead, behind, late, reset = fleet.nodes
    fleet.run(300)
    ahead.skew_s, behind.skew_s = 600.0, -600.0
    fleet.run(600)
    for ago in (240.0, 30.0, 120.0, 60.0):
        fleet.report(late, ago_s=ago)
        fleet.run(30)
    reset.set_gpus(gpu_ecc_corrected_volatile_total=0.0, gpu_pcie_replay_total=0.0)
    fleet.run(600)
    ahead.skew_s = behind.skew_s = 0.0
    fleet.run(1200, every_s=60)
    return fleet


def long_in_use(node: Node) -> None:
    node.set_gpus(gpu_ecc_corrected_volatile_total=4.0e6, gpu_pcie_replay_total=900.0)


STORY = Story(
    26,
    "Clock skew, late and out-of-order batches, counter resets",
    (
        "One node's clock runs ten minutes ahead, one's ten behind; readings come late and out "
        "of order; a driver reload sets counters back."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
