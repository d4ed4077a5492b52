"""Story 25 (design: silence is never a hardware verdict)."""

from __future__ import annotations

from tests.builders.stories import EAGER, StoryFleet, leaves_of
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(24, gpus=4, policy=EAGER, placed=leaves_of(24))
    fleet.never_excluded()
    fleet.never_suspect(*(node.gpu(n) for node in fleet.nodes for n in range(4)))
    dark = fleet.nodes[:16]
    fleet.run(120)
    for node in dark:
        node.sends = False
    fleet.run(3600, every_s=120)
    for node in dark:
        fleet.reboot(node)
    fleet.run(3600, every_s=300)
    return fleet


STORY = Story(
    25,
    "A facility outage: many nodes vanish at once",
    (
        "Two power domains go dark: 16 of 24 nodes fall silent together and boot again an hour "
        "later."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
