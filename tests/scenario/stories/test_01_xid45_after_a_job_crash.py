"""Story 1 (NVSentinel#1629, #1710)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(77, gpus=4, policy=EAGER)
    fleet.start_job("4711", fleet.nodes)
    fleet.never_excluded()
    fleet.never_suspect()
    fleet.run(120, every_s=60)
    for node in fleet.nodes:
        for gpu in range(4):
            fleet.xid(node, gpu, 45, f"pid=8{gpu}2, name=python3, Ch 0000000{gpu}")
    fleet.end_job("4711")
    fleet.run(600, every_s=60)
    return fleet


STORY = Story(
    1,
    "XID 45 on 77 sound nodes after one job's crash",
    "A job on 308 GPUs crashes; each GPU's channel is torn down and logs XID 45, an echo.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
