"""Story 7 (dcgm-exporter#190, DCGM#235)."""

from __future__ import annotations

from gpuwarden_verdict.entities import EntityState, FaultClass
from tests.builders.stories import StoryFleet
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(2)
    node = fleet.nodes[0]
    fleet.never_excluded(*(node.gpu(number) for number in range(1, 8)))
    fleet.never_suspect(*(node.gpu(number) for number in range(1, 8)))
    fleet.xid(node, 0, 94, "pid=5111, name=python3, Contained: SM (0x1). RST: No, D-RST: No")
    fleet.run(7200, every_s=600)
    fleet.xid(node, 0, 94, "pid=6222, name=python3, Contained: SM (0x1). RST: No, D-RST: No")
    fleet.run(600, every_s=60)
    return fleet


STORY = Story(
    7,
    "The second identical XID",
    (
        "A contained memory error (94) comes twice on one GPU, hours apart; a gauge of the last "
        "code would show no change."
    ),
    tell,
)


def test_story() -> None:
    fleet = tell()
    gpu = fleet.nodes[0].gpu(0)
    (incident,) = fleet.open(gpu)
    told = [item for item in incident.evidence if item.detector == "xid:94"]
    assert [item.count for item in told] == [2]
    assert incident.fault_class is FaultClass.MEMORY
    assert "xid_repeat:94" in {item.detector for item in incident.evidence}
    assert fleet.state(gpu) is EntityState.EXCLUDED
    assert_documented(STORY, fleet)
