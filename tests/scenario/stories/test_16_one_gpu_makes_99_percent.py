"""Story 16 (Delta: one GPU made 99 % of the 95s)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(4)
    loud = fleet.nodes[0].gpu(0)
    few = [node.gpu(n) for node in fleet.nodes[1:] for n in (1, 3, 5)]
    quiet = [node.gpu(n) for node in fleet.nodes for n in (2, 4, 6)]
    fleet.never_excluded(*few, *quiet)
    fleet.never_suspect(*quiet)
    fleet.run(60)
    for number in range(50):
        line = f"pid={9000 + number}, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
        fleet.xid(fleet.nodes[0], 0, 94, line)
        if number < 3:
            for node in fleet.nodes[1:]:
                fleet.xid(node, (1, 3, 5)[number], 94, line)
        fleet.run(60)
    assert fleet.open(loud)
    return fleet


STORY = Story(
    16,
    "One GPU logs 99 % of a code",
    "XID 94 comes a thousand times from one GPU, and once from ten others.",
    tell,
)


def test_story() -> None:
    fleet = tell()
    loud = fleet.nodes[0].gpu(0)
    assert fleet.state(loud) is not EntityState.HEALTHY
    assert max(fleet.open(), key=lambda one: one.confidence).entity == loud
    assert_documented(STORY, fleet)
