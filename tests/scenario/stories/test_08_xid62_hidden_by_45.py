"""Story 8 (DCGM#235)."""

from __future__ import annotations

from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    fleet.never_suspect(*(node.gpu(number) for number in range(8) if number != 3))
    fleet.run(60)
    fleet.xid(node, 3, 62, "pid='<unknown>', name=<unknown>, 2027(3044) 00000000 00000000")
    for channel in range(8):
        fleet.xid(node, 3, 45, f"pid=812, name=python3, Ch 0000000{channel}")
    fleet.run(300)
    return fleet


STORY = Story(
    8,
    "XID 62 hidden by 45",
    (
        "A GPU halts (62); the channels that it tears down log 45 over and over, the last code "
        "one sees."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    gpu = fleet.nodes[0].gpu(3)
    assert fleet.excluded() == [gpu.key]
    (incident,) = fleet.open(gpu)
    assert incident.why.startswith("XID 62")
    assert_documented(STORY, fleet)
