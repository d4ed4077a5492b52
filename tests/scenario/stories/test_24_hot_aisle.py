"""Story 24 (design: peers are warm too)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet, leaves_of
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(16, policy=EAGER, placed=leaves_of(16, a_rack=8))
    fleet.never_excluded()
    fleet.never_suspect(*(node.gpu(n) for node in fleet.nodes for n in range(8)))
    hot = fleet.nodes[:8]
    fleet.run(600, every_s=60)
    for minute in range(60):
        for node in hot:
            node.set_gpus(
                gpu_temperature_celsius=58.0 + minute / 3.0,
                gpu_memory_temperature_celsius=70.0 + minute / 3.0,
            )
        fleet.run(60, every_s=60)
    for node in hot:
        node.set_gpus(gpu_temperature_celsius=58.0, gpu_memory_temperature_celsius=70.0)
    fleet.run(5400, every_s=300)
    return fleet


STORY = Story(
    24,
    "A hot aisle: all nodes warm up together",
    (
        "The cooling of one rack weakens over an hour: its eight nodes end up 20 C warmer than "
        "the others."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
