"""Story 20 (NVSentinel#1629 (11 racks))."""

from __future__ import annotations

from gpuwarden_verdict.entities import FaultClass
from gpuwarden_wire.metrics import EntityKind
from tests.builders.stories import StoryFleet, leaves_of
from tests.builders.story_page import Story, assert_documented


def tell() -> StoryFleet:
    fleet = StoryFleet(32, gpus=2, placed=leaves_of(16))
    fleet.never_excluded()
    behind = fleet.nodes[:16]
    fleet.never_suspect(*(node.ref for node in fleet.nodes[16:]))
    fleet.run(300, every_s=60)
    for node in behind:
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=1.0, nic_port_physical_state=2.0)
        fleet.lines(node, "mlx5_core 0000:18:00.0 mlx5_0: Port: 1 Link DOWN")
    fleet.run(300)
    (parent,) = [one for one in fleet.open() if one.entity.key == "leaf:leaf-0"]
    assert parent.fault_class is FaultClass.FABRIC
    for node in behind:
        node.set(EntityKind.NIC, "mlx5_0/1", nic_port_state=4.0, nic_port_physical_state=5.0)
        fleet.lines(node, "mlx5_core 0000:18:00.0 mlx5_0: Port: 1 Link ACTIVE")
    fleet.run(5400, every_s=120)
    return fleet


STORY = Story(
    20,
    "A leaf switch reboots",
    ("The ports of all 16 nodes on one leaf go down together and come back after five minutes."),
    tell,
)


def test_story() -> None:
    fleet = tell()
    assert fleet.open() == []
    assert_documented(STORY, fleet)
