"""Story 30 (design: probation re-excludes on the first symptom)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node, other = fleet.nodes
    gpu = node.gpu(2)
    fleet.run(60)
    fleet.xid(node, 2, 79, "pid=812, name=python3, GPU has fallen off the bus.")
    fleet.engine.begin_repair(gpu, "ann", "reseated", fleet.now)
    fleet.check_passed(node, 2)
    assert fleet.state(gpu) is EntityState.PROBATION
    fleet.run(120)
    fleet.never_excluded(other.gpu(2))
    contained = "pid=5111, name=python3, Contained: SM (0x1). RST: No, D-RST: No"
    for same in (node, other):
        fleet.xid(same, 2, 94, contained)
    fleet.run(120)
    return fleet


STORY = Story(
    30,
    "A repaired GPU fails again in probation",
    (
        "A GPU that had fallen off the bus passes its check and is on probation; a contained "
        "memory error, which elsewhere would only raise suspicion, takes it out again."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.excluded() == [fleet.nodes[0].gpu(2).key]
    assert_documented(STORY, fleet)
