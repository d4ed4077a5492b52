"""Story 12 (NVSentinel#883, #889)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState, FaultClass
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2, interval_s=300.0)
    dead, sound = fleet.nodes
    fleet.never_suspect(sound.ref, *(sound.gpu(number) for number in range(8)))
    fleet.run(1200)
    dead.set(EntityKind.NODE, "", node_fabric_manager_running=0.0)
    fleet.run(1800)
    assert FaultClass.FABRIC in fleet.classes(dead.ref), "seen within half an hour"
    fleet.never(
        "the incident ends while the service is dead",
        lambda: FaultClass.FABRIC not in fleet.classes(dead.ref),
    )
    fleet.run(4 * 86_400, every_s=3600.0)
    return fleet


STORY = Story(
    12,
    "The fabric manager is dead for days",
    ("On a node with NVSwitches the fabric manager stops; nothing else happens for four days."),
    tell,
)


def test_story() -> None:
    fleet = tell()
    dead = fleet.nodes[0]
    assert fleet.state(dead.ref) is not EntityState.HEALTHY
    assert_documented(STORY, fleet)
